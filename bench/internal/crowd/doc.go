// Package crowd measures gateways with thousands of TCP connections: an ingress that they send to, and an egress, or what people use
// instead of one, that pushes to them. Every frame is checked, its sequence and its checksum, and times are taken from when a frame
// was to be sent.
package crowd

import (
	"time"

	"github.com/hugebus/hugebus/bench/internal/worker"
)

// Roles are what workers must be able to do for the cases of this package.
func Roles() map[string]worker.Role {
	return map[string]worker.Role{
		roleGateway: worker.Application(gateway),
		roleSend:    worker.Application(send),
		roleConsume: worker.Application(consume),
		roleStream:  worker.Application(stream),
		roleFinish:  worker.Application(finish),
		roleBare:    worker.Application(bare),
		roleEgress:  worker.Application(pushEgress),
		roleClients: worker.Application(pushClients),
	}
}

// patience is how long nothing may happen in a round before it is given up.
const patience = 30 * time.Second
