package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/hugebus/hugebus/client"
)

// A server is an ingress or an egress.
type server interface {
	Addr() net.Addr
	Serve(ctx context.Context) error
}

// serve is a process that listens: it makes a server, says "ready ADDRESS", serves until control says stop, and says done of it
// when it has ended and nothing of it is left in its process.
func serve(common Common, control *Control, say io.Writer, open func(context.Context, *client.Client) (server, error), done func(server) string) error {
	before, c, err := common.begin(control)
	if c == nil {
		return err
	}
	var s server
	err = control.attaching(func(ctx context.Context) error {
		s, err = open(ctx, c)
		return err
	})
	if err != nil {
		return errors.Join(control.unlessStopped(err), c.Close())
	}
	if _, err := fmt.Fprintln(say, "ready", s.Addr()); err != nil {
		return err
	}
	err = s.Serve(control.ctx)
	if err := errors.Join(err, c.Close(), before.Left()); err != nil {
		return err
	}
	_, err = fmt.Fprintln(say, done(s))
	return err
}
