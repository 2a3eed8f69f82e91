// Package keeper keeps what a broker needs to survive its own death: for each topic some bytes and the descriptors of
// its memory and doorbells.
//
// A Store does the keeping. There are three: a process of its own (Start), systemd's file descriptor store (Systemd), and
// none at all (None). Open picks one. docs/keeper.md says which to expect where, and what the next broker finds if one is
// killed before or after each step.
//
// The keeper process is the hugebus program again, with a hidden subcommand whose body is Main. It holds descriptors
// and bytes, understands neither, and lives until Shutdown. One broker at a time holds its lease: the connection is the
// lease, so the kernel ends it with the process. Messages are the packets of package control: JSON and SCM_RIGHTS
// over SOCK_SEQPACKET.
//
// Doorbells are eventfds that publishers write on the way. A Go os.File of one would be watched by the poller of whoever
// keeps it, and wake that process at every ring. So everything here keeps bare descriptors, and makes files only to
// hand them out.
package keeper
