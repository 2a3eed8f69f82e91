// Package door is what everything that listens has in common: addresses and the sockets behind them, limits on
// connections, and a log that a flood of bad clients cannot fill.
package door
