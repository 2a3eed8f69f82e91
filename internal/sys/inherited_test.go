package sys_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/internal/testutil"
)

func init() { testutil.Register("heir", heir) }

// heir keeps the first of three inherited files, and says which of its descriptors are open then.
func heir([]string) {
	parent := 6 // the pipe of package testutil comes after the three files
	own, err := os.Open(os.DevNull)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer own.Close()
	fmt.Println(sys.CloseInherited(3, parent))
	for _, fd := range []int{0, 1, 2, 3, 4, 5, parent, int(own.Fd())} {
		_, err := sys.InodeOf(fd)
		fmt.Print(err == nil, " ")
	}
	fmt.Println()
}

func TestCloseInherited(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p := testutil.Launch(t, testutil.Child{Role: "heir", Files: []*os.File{null, null, null}})
	p.Expect("<nil>")
	p.Expect("true true true true false false true true ")
	p.Succeed()
}
