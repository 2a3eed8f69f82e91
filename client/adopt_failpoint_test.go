package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/testutil"
)

// A crash is a step at which the broker is killed, and what makes it go there.
type crash struct {
	point string
	do    func(k *keptWorld, topic string) error
}

// once is a context that waits for no other broker.
func once(k *keptWorld) (context.Context, *client.Client) {
	c, err := client.Dial(k.t.Context(), client.Options{Socket: k.socket, Logger: quietLog()})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = c.Close() })
	return k.t.Context(), c
}

func attachOnce(k *keptWorld, topic string) error {
	ctx, c := once(k)
	_, err := c.Lane(ctx, topic, client.PublisherOptions{})
	return err
}

func joinOnce(k *keptWorld, topic string) error {
	ctx, c := once(k)
	_, err := c.Group(ctx, topic, "fresh", client.GroupOptions{})
	return err
}

// leaveOnce lets another process, which the broker does not outlive, leave.
func leaveOnce(commands ...string) func(*keptWorld, string) error {
	return func(k *keptWorld, topic string) error {
		p := k.puppet(k.t, topic, "")
		for _, command := range commands {
			p.do(command, "ok")
		}
		p.Kill()
		return client.ErrBrokerUnavailable
	}
}

var crashes = []crash{
	{broker.FailAttachAdmitted + "=kill@3", attachOnce},
	{broker.FailAttachRecorded + "=kill@3", attachOnce},
	{broker.FailAttachAdmitted + "=kill@3", joinOnce},
	{broker.FailAttachRecorded + "=kill@3", joinOnce},
	{broker.FailGroupOpened + "=kill", joinOnce},
	{broker.FailGroupClosed + "=kill", leaveOnce("member fresh")},
	{broker.FailDepartFreed + "=kill", leaveOnce("lane", "claim 0 x 10")},
	{broker.FailDepartFreed + "=kill", leaveOnce("sub reliable")},
	{broker.FailDepartFreed + "=kill", leaveOnce("member fresh")},
	{"ring/reap/filed=kill", leaveOnce("member fresh")},
	{"ring/reap/idle=kill", leaveOnce("member fresh")},
	{"ring/repair/condemned=kill", leaveOnce("lane", "claim 0 x 10")},
	{"ring/repair/filled=kill", leaveOnce("lane", "claim 0 x 10")},
	{"ring/repair/mid-free=kill", leaveOnce("lane", "claim 0 x 10")},
	{"ring/repair/before-stamp=kill", leaveOnce("lane", "claim 0 x 10")},
	{"ring/repair/before-free=kill", leaveOnce("lane", "claim 0 x 10")},
}

// TestBrokerKilledAtAnyStep: what it has half done is finished or undone by the next one, and nobody else notices.
func TestBrokerKilledAtAnyStep(t *testing.T) {
	binary := (&world{}).withFailpoints(t).binary
	t.Run("serving", func(t *testing.T) { killedServing(t, binary) })
	t.Run("create", func(t *testing.T) { killedInCreate(t, binary) })
	t.Run("remove", func(t *testing.T) { killedInRemove(t, binary) })
	t.Run("adopt", func(t *testing.T) { killedInAdoption(t, binary) })
}

func killedServing(t *testing.T, binary string) {
	for i, c := range crashes {
		t.Run(fmt.Sprint(i, " ", strings.ReplaceAll(c.point, "/", "-")), func(t *testing.T) {
			k := newKeptWorldOf(t, binary, c.point)
			topic := k.topic(t, client.TopicOptions{})
			l, reader := k.lane(t, topic), k.subscriber(t, topic, client.SubscriberOptions{})
			if err := c.do(k, topic); !errors.Is(err, client.ErrBrokerUnavailable) {
				t.Errorf("who was served at that moment: %v", err)
			}
			k.broker.Wait()
			publish(t, l, "while it is away")
			k.start("")
			want(t, "what was published", drain(t, reader), "while it is away")
			info := k.attached(t, topic, 1, 1)
			if info.GroupCount != 0 {
				t.Errorf("groups: %+v", info.Groups)
			}
			k.flows(topic, l, reader)
			k.emptied(topic)
		})
	}
}

// flows checks that nothing holds publishers back, and that every slot can be had.
func (k *keptWorld) flows(topic string, l *client.Lane, reader *client.Subscriber) {
	k.t.Helper()
	for i := range 300 {
		publish(k.t, l, fmt.Sprint(i))
		want(k.t, "read", drain(k.t, reader), fmt.Sprint(i))
	}
	info := k.info(k.t, topic)
	c := k.dial()
	for range info.PublisherSlots - info.PublisherCount {
		if _, err := c.Lane(k.t.Context(), topic, client.PublisherOptions{}); err != nil {
			k.t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		k.t.Error(err)
	}
	if err := l.Close(); err != nil {
		k.t.Error(err)
	}
	if err := reader.Close(); err != nil {
		k.t.Error(err)
	}
	k.attached(k.t, topic, 0, 0)
}

// emptied removes the topic, and checks that nothing is left.
func (k *keptWorld) emptied(topic string) {
	k.t.Helper()
	if err := k.c.RemoveTopic(k.t.Context(), topic); err != nil {
		k.t.Fatal(err)
	}
	if err := k.c.Close(); err != nil {
		k.t.Error(err)
	}
	k.kill()
	k.keeps("socket")
}

// killedInCreate: the topic is there, or it is not, and can be made then.
func killedInCreate(t *testing.T, binary string) {
	for point, made := range map[string]bool{broker.FailCreateMade: false, broker.FailCreateRecorded: true} {
		t.Run(strings.ReplaceAll(point, "/", "-"), func(t *testing.T) {
			k := newKeptWorldOf(t, binary, point+"=kill")
			ctx, c := once(k)
			if _, err := c.CreateTopic(ctx, "t", client.TopicOptions{}); !errors.Is(err, client.ErrBrokerUnavailable) {
				t.Errorf("create: %v", err)
			}
			k.broker.Wait()
			k.start("")
			_, err := k.c.CreateTopic(t.Context(), "t", client.TopicOptions{})
			if made && !errors.Is(err, client.ErrTopicExists) || !made && err != nil {
				t.Errorf("create again: %v", err)
			}
			k.emptied("t")
		})
	}
}

// killedInRemove: the topic is removed, and its memory is held as long as somebody is attached.
func killedInRemove(t *testing.T, binary string) {
	t.Run("in use", func(t *testing.T) {
		k := newKeptWorldOf(t, binary, broker.FailRemoveRecorded+"=kill")
		topic := k.topic(t, client.TopicOptions{})
		l, reader := k.lane(t, topic), k.subscriber(t, topic, client.SubscriberOptions{})
		publish(t, l, "left")
		k.removeFails(topic)
		k.start("")
		testutil.Eventually(t, "the publisher is told", func() bool { return errors.Is(l.TryPublish([]byte("x")), client.ErrTopicRemoved) })
		if got := drainRemoved(t, reader); len(got) == 0 || got[0] != "left" {
			t.Errorf("what was left reads %q", got)
		}
		// All that was read in memory; the broker hears at once of what is closed only from a client that is back.
		if _, err := k.c.Topics(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.Close(), reader.Close(), k.c.Close()); err != nil {
			t.Error(err)
		}
		k.kill()
		k.keeps("socket")
	})
	t.Run("not in use", func(t *testing.T) {
		k := newKeptWorldOf(t, binary, broker.FailRemoveClosed+"=kill")
		topic := k.topic(t, client.TopicOptions{})
		k.removeFails(topic)
		k.start("") // nobody was told that it is gone: it is there
		k.emptied(topic)
	})
}

func (k *keptWorld) removeFails(topic string) {
	k.t.Helper()
	ctx, c := once(k)
	if err := c.RemoveTopic(ctx, topic); !errors.Is(err, client.ErrBrokerUnavailable) {
		k.t.Errorf("remove: %v", err)
	}
	k.broker.Wait()
}

// drainRemoved polls until the subscriber says that its topic was removed.
func drainRemoved(t *testing.T, s *client.Subscriber) (words []string) {
	t.Helper()
	for {
		_, err := s.Poll(16, func(f client.Frame) error {
			words = append(words, word(f.Payload))
			return nil
		})
		if errors.Is(err, client.ErrTopicRemoved) {
			return words
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// killedInAdoption: the next one begins again.
func killedInAdoption(t *testing.T, binary string) {
	points := []string{broker.FailAdoptLoaded, broker.FailAdoptTopic, broker.FailAdoptClients, broker.FailAdoptSwept, broker.FailReattach,
		broker.FailDepartFreed, "ring/repair/before-stamp", "ring/repair/before-free"}
	k := newKeptWorldOf(t, binary, "")
	topic := k.topic(t, client.TopicOptions{})
	l, reader := k.lane(t, topic), k.subscriber(t, topic, client.SubscriberOptions{})
	before := k.info(t, topic)
	for _, point := range points {
		dies := k.puppet(t, topic, "")
		dies.do("lane", "ok")
		dies.do("claim 0 never 10", "ok")
		k.kill()
		dies.Kill()
		k.launch(point + "=kill")
		if state := k.broker.Wait(); state.Success() {
			t.Fatalf("%s: the broker was not killed", point)
		}
		publish(t, l, point)
		k.start("")
		k.attached(t, topic, 1, 1)
		sameSlots(t, before, k.info(t, topic))
		want(t, point, drain(t, reader), point)
	}
	k.flows(topic, l, reader)
	k.emptied(topic)
}
