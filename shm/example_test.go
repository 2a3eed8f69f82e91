package shm_test

import (
	"fmt"
	"log"

	"github.com/hugebus/hugebus/shm"
)

// A process makes a segment and keeps it writable; a reader gets a descriptor that cannot write. Usually the
// descriptor goes to another process, over a Unix socket.
func ExampleCreate() {
	seg, err := shm.Create(shm.Options{Name: "prices", Size: 64 << 10})
	if err != nil {
		log.Fatal(err)
	}
	defer seg.Close()
	copy(seg.Bytes(), "hello")

	f, err := seg.ReadOnlyFile()
	if err != nil {
		log.Fatal(err)
	}
	reader, err := shm.Open(f, false)
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()
	fmt.Printf("%s, %s\n", reader.Bytes()[:5], shm.FormatSize(reader.Size()))
	// Output: hello, 64KiB
}

// A descriptor for reading cannot be used for writing, whoever tries.
func ExampleOpen() {
	seg, err := shm.Create(shm.Options{Size: 4096, Pages: shm.Pages4KiB})
	if err != nil {
		log.Fatal(err)
	}
	defer seg.Close()
	f, err := seg.ReadOnlyFile()
	if err != nil {
		log.Fatal(err)
	}
	_, err = shm.Open(f, true)
	fmt.Println(err)
	// Output: shm: open: map 4KiB for reading and writing: mmap: permission denied
}

// Memory stays mapped while somebody holds an Acquire, whoever closes the segment meanwhile.
func ExampleSegment_Acquire() {
	seg, err := shm.Create(shm.Options{Size: 4096, Pages: shm.Pages4KiB})
	if err != nil {
		log.Fatal(err)
	}
	if err := seg.Acquire(); err != nil {
		log.Fatal(err)
	}
	copy(seg.Bytes(), "still there")
	seg.Close()
	fmt.Printf("%s\n", seg.Bytes()[:11])
	seg.Release()
	fmt.Println(seg.Acquire())
	// Output:
	// still there
	// file already closed
}
