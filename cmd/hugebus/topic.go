package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/shm"
)

func (a *app) topicCommand() *cobra.Command {
	cmd := group("topic", "Create, list, show, unstick and remove topics")
	cmd.AddCommand(a.topicCreate(), a.topicList(), a.topicShow(), a.topicUnstick(), a.topicRemove())
	return cmd
}

// createFlags are the options of a topic as they stand on the command line.
type createFlags struct {
	capacity, pages, maxPayload     string
	publishers, subscribers, groups int
	exclusive, lock                 bool
	node                            int
	redeliveries                    int
}

func (f *createFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.capacity, "capacity", "", "memory for frames, a power of two such as 64MiB (the broker's default, if it has no other)")
	flags.StringVar(&f.pages, "pages", "", "pages of that memory: auto takes the best there are; 1GiB, 2MiB, thp and 4KiB take those or fail")
	flags.StringVar(&f.maxPayload, "max-payload", "", "largest payload of a frame (default, and at most: about a quarter of the capacity)")
	flags.IntVar(&f.publishers, "publishers", 0, "slots for publishers (default 64)")
	flags.IntVar(&f.subscribers, "subscribers", 0, "slots for subscribers and group members (default 64)")
	flags.IntVar(&f.groups, "groups", 0, "slots for groups (default 16)")
	flags.IntVar(&f.redeliveries, "max-redeliveries", 0, "how often a group's frame is handed out again before it goes to the topic NAME.dead; negative: for ever (default 5)")
	flags.BoolVar(&f.exclusive, "exclusive", false, "one publisher at a time, which then publishes faster")
	flags.BoolVar(&f.lock, "lock", false, "keep the memory from being swapped out (mlock)")
	flags.IntVar(&f.node, "numa-node", 0, "NUMA node that the memory comes from (default: any)")
	completeWords(cmd, "pages", "auto", "1GiB", "2MiB", "thp", "4KiB")
}

// options parses what can be wrong by itself; the broker checks the rest.
func (f *createFlags) options(cmd *cobra.Command) (client.TopicOptions, error) {
	o := client.TopicOptions{
		Publishers: f.publishers, Subscribers: f.subscribers, Groups: f.groups,
		Exclusive: f.exclusive, Lock: f.lock, MaxRedeliveries: f.redeliveries,
	}
	var err error
	if f.capacity != "" {
		if o.Capacity, err = size(cmd, "capacity", f.capacity); err != nil {
			return o, err
		}
	}
	if f.maxPayload != "" {
		if o.MaxPayload, err = size(cmd, "max-payload", f.maxPayload); err != nil {
			return o, err
		}
	}
	if f.pages != "" {
		pages, err := shm.ParsePages(f.pages)
		if err != nil {
			return o, usage(cmd, "--pages: %w", err)
		}
		o.Pages = pages.String()
	}
	if cmd.Flags().Changed("numa-node") {
		o.NUMANode = &f.node
	}
	return o, nil
}

// size parses a flag that is a number of bytes above 0.
func size(cmd *cobra.Command, flag, text string) (int64, error) {
	n, err := shm.ParseSize(text)
	switch {
	case err != nil:
		return 0, usage(cmd, "--%s: %w", flag, err)
	case n == 0:
		return 0, usage(cmd, "--%s: %s is no size: leave it out for the default", flag, text)
	}
	return n, nil
}

func (a *app) topicCreate() *cobra.Command {
	var f createFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a topic",
		Long: `Create a topic. Its memory is there, in full, when the command returns.

Capacity is a power of two. A large one is not waste: it lets subscribers be late, and it is
faster on huge pages. A payload may be as large as about a quarter of it.`,
		Example: `  hugebus topic create orders
  hugebus topic create orders --capacity 256MiB --pages 2MiB
  hugebus topic create ticks --exclusive --lock --numa-node 0`,
		Args:              topicArg,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options(cmd)
			if err != nil {
				return err
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				t, err := c.CreateTopic(ctx, args[0], o)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(t)
				}
				return a.print(fmt.Sprintf("topic %s: %s on %s pages, payloads up to %d bytes\n",
					t.Name, shm.FormatSize(t.Capacity), t.Pages, t.MaxPayload))
			})
		},
	}
	f.register(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) topicList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "ls",
		Aliases:           []string{"list"},
		Short:             "List the topics that this user may use",
		Example:           "  hugebus topic ls\n  hugebus topic ls --json | jq -r .[].name",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				topics, err := c.Topics(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(topics)
				}
				return a.print(topicTable(topics))
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) topicShow() *cobra.Command {
	var asJSON, rates bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a topic and who is attached to it",
		Long: `Show a topic, its publishers, subscribers and groups: who they are, where they stand, how far
they are behind, and how fast they are.

Positions and lags are bytes of the topic's memory: headers and padding count, so a small
frame is 64 bytes.`,
		Example:           "  hugebus topic show orders\n  hugebus topic show orders --json --rates=false",
		Args:              topicArg,
		ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				show := c.Topic
				if rates {
					show = c.TopicRates
				}
				t, err := show(ctx, args[0])
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(t)
				}
				return a.print(topicPage(t))
			})
		},
	}
	cmd.Flags().BoolVar(&rates, "rates", true, "watch for some 200 ms to tell rates")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) topicRemove() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "rm NAME",
		Aliases: []string{"remove"},
		Short:   "Remove a topic",
		Long: `Remove a topic. Who is attached to it can still read what it holds, and is told that it is gone;
its memory is freed when the last of them has left.`,
		Example:           "  hugebus topic rm orders",
		Args:              topicArg,
		ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error {
				if err := c.RemoveTopic(ctx, args[0]); err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(map[string]string{"removed": args[0]})
				}
				return a.print("topic " + args[0] + " is removed\n")
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func jsonFlag(cmd *cobra.Command, into *bool) {
	cmd.Flags().BoolVar(into, "json", false, "print JSON")
}

// ask connects to the broker, calls fn, and disconnects. A signal ends it as it ends any program.
func (a *app) ask(cmd *cobra.Command, fn func(ctx context.Context, c *client.Client) error) error {
	c, err := a.dial(cmd.Context(), cmd)
	if err != nil {
		return err
	}
	if err := fn(cmd.Context(), c); err != nil {
		_ = c.Close() // the first error says what went wrong
		return err
	}
	return c.Close()
}
