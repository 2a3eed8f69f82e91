// Package shm makes and maps shared memory segments: sealed memfds, on huge pages where there are some.
//
// Create makes a segment and Open maps one that came from another process. A segment never changes its size
// (sealed), and every page of it is there before anybody uses it (populated), so that touching it cannot raise
// SIGBUS: what would be a signal later is an error now, which names what was needed, what was there and how to get
// it.
//
// Readers get a descriptor from ReadOnlyFile. Its memfd has mode 0400, so that another user cannot open it again for
// writing through /proc/self/fd; and a mapping for writing of a read-only descriptor is refused by the kernel. The
// owner of a segment (and root) could change the mode; nothing protects a user from its own processes.
//
// What seals cannot prevent: whoever has a writable descriptor can take single pages out of the middle
// (FALLOC_FL_PUNCH_HOLE; only F_SEAL_WRITE forbids it, which forbids writing too). On ordinary and transparent huge
// pages the others then see zeros. On hugetlb the page goes back to the machine's pool, and if somebody else takes it
// first, the next access to it is a SIGBUS. So give writable descriptors only to processes that are trusted that far.
//
// What is in a segment is up to others: this package knows nothing of rings.
package shm
