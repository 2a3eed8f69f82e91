package shm

import "unsafe"

// address returns where the mapping mem starts, to find it in /proc. Sound: it becomes a number and never a pointer
// again, and a mapping does not move.
func address(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }
