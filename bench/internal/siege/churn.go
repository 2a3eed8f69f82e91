package siege

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hugebus/hugebus/client"
)

// churned are the topics that churn makes and removes.
var churned = []string{"comes-and-goes-1", "comes-and-goes-2", "comes-and-goes-3"}

const (
	// churnPause is the time from one to the next.
	churnPause = 20 * time.Millisecond
	// brokerPatience is how many times as long as others may wait who needs answers of brokers that die over them.
	brokerPatience = 3
)

// churns makes a topic with a group and removes it, over and over, so that brokers die in the middle of that. It is a goroutine of
// its own, because the broker may be stopped.
func (d *director) churns(ctx context.Context, name string) {
	for used := false; ; used = !used {
		select {
		case <-ctx.Done():
			return
		case <-time.After(churnPause):
		}
		if err := d.churn(ctx, name, used); err != nil {
			select {
			case d.events <- event{err: err}:
			case <-ctx.Done():
			}
			return
		}
	}
}

// churn makes the topic and removes it: while it is used, or when its group is closed.
func (d *director) churn(ctx context.Context, name string, used bool) error {
	ctx, cancel := context.WithTimeout(ctx, brokerPatience*d.o.Watchdog)
	defer cancel()
	unknown := func(err error) bool { return errors.Is(err, client.ErrBrokerUnavailable) }
	for {
		_, err := d.bus.CreateTopic(ctx, name, client.TopicOptions{Capacity: 4 << 10})
		if err == nil || errors.Is(err, client.ErrTopicExists) {
			break
		}
		if ctx.Err() != nil || !unknown(err) {
			return unlessCanceled(fmt.Errorf("create topic %s: %w", name, err))
		}
	}
	g, err := d.bus.Group(ctx, name, group, client.GroupOptions{})
	if err != nil && (ctx.Err() != nil || !unknown(err)) {
		return unlessCanceled(fmt.Errorf("group of topic %s: %w", name, err))
	}
	if g != nil {
		defer g.Close()
	}
	if g != nil && !used {
		if err := g.Close(); err != nil {
			return fmt.Errorf("close the group of topic %s: %w", name, err)
		}
	}
	return unlessCanceled(d.unchurn(ctx, name))
}

// unchurn removes the topic of churn, if it is there.
func (d *director) unchurn(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, brokerPatience*d.o.Watchdog)
	defer cancel()
	for {
		err := d.bus.RemoveTopic(ctx, name)
		if err == nil || errors.Is(err, client.ErrNotFound) {
			return nil
		}
		if ctx.Err() != nil || !errors.Is(err, client.ErrBrokerUnavailable) {
			return fmt.Errorf("remove topic %s: %w", name, err)
		}
	}
}

// unlessCanceled is err, but nil if it is only that nobody wants to know any more.
func unlessCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// unstickPause is the time from one look for claims that are held too long to the next.
const unstickPause = 100 * time.Millisecond

// unsticks is an operator who takes every claim away that is held for too long, by publishers that were stopped.
func (d *director) unsticks(ctx context.Context) {
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(unstickPause):
		}
		name := d.arenas[i%len(d.arenas)].name
		bounded, cancel := context.WithTimeout(ctx, d.o.Watchdog)
		_, err := d.bus.Unstick(bounded, name, client.UnstickOptions{})
		cancel()
		switch {
		case err == nil || errors.Is(err, client.ErrNotFound) || errors.Is(err, client.ErrBrokerUnavailable):
		case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		default:
			select {
			case d.events <- event{err: fmt.Errorf("unstick topic %s: %w", name, err)}:
			case <-ctx.Done():
			}
			return
		}
	}
}
