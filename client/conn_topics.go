package client

import (
	"context"
	"time"

	"github.com/hugebus/hugebus/internal/control"
)

// CreateTopic makes a topic. Errors: ErrTopicExists, ErrInvalid, ErrRefused, ErrQuota,
// ErrNoMemory, ErrBrokerUnavailable, ctx's.
func (c *Client) CreateTopic(ctx context.Context, name string, o TopicOptions) (TopicInfo, error) {
	var r control.TopicReply
	err := c.conn.request(ctx, control.OpCreate, control.CreateRequest{Name: name, Options: o}, &r)
	return r.Topic, err
}

// Topics lists the topics that this user may do something with, by name.
func (c *Client) Topics(ctx context.Context) ([]TopicInfo, error) {
	all := []TopicInfo{}
	for after := ""; ; {
		var page control.ListReply
		if err := c.conn.request(ctx, control.OpList, control.ListRequest{After: after}, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Topics...)
		if !page.More || len(page.Topics) == 0 {
			return all, nil
		}
		after = page.Topics[len(page.Topics)-1].Name
	}
}

// Topic describes one topic with everything that is attached to it. ErrNotFound: there
// is none of that name.
func (c *Client) Topic(ctx context.Context, name string) (TopicInfo, error) {
	return c.show(ctx, name, false)
}

// TopicRates is Topic with rates filled in, for which the broker watches for some 200 ms.
func (c *Client) TopicRates(ctx context.Context, name string) (TopicInfo, error) {
	return c.show(ctx, name, true)
}

func (c *Client) show(ctx context.Context, name string, rates bool) (TopicInfo, error) {
	var all TopicInfo
	for after := ""; ; {
		var page control.TopicReply
		ask := control.ShowRequest{Name: name, Rates: rates, After: after}
		if err := c.conn.request(ctx, control.OpShow, ask, &page); err != nil {
			return TopicInfo{}, err
		}
		if after == "" {
			all = page.Topic
		} else {
			all.Merge(page.Topic)
		}
		if page.Next == "" || page.Next == after {
			return all, nil
		}
		after = page.Next
	}
}

// RemoveTopic removes a topic. Who is attached to it can still read what is there, and
// is told by ErrTopicRemoved.
func (c *Client) RemoveTopic(ctx context.Context, name string) error {
	return c.conn.request(ctx, control.OpRemove, control.RemoveRequest{Name: name}, &control.Empty{})
}

// Ping asks the broker for an answer, and returns how long it took.
func (c *Client) Ping(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	err := c.conn.request(ctx, control.OpPing, control.Empty{}, &control.Empty{})
	return time.Since(began), err
}

// StopBroker ends the broker with everything that would outlive it, as `hugebus shutdown`
// does: all topics are removed. Only the broker's own user and root may (ErrRefused). It returns
// when the broker has been told, which may be before it has ended.
func (c *Client) StopBroker(ctx context.Context) error {
	return c.conn.request(ctx, control.OpStop, control.StopRequest{}, &control.Empty{})
}
