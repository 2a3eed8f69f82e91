// Package workload measures the bus from the outside, as an application uses it: worker
// processes that attach through package client, to topics of a broker that runs in the
// parent. Round trips over two topics, and one-way streams over one.
package workload
