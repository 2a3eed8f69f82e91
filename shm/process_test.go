package shm_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/shm"
)

func init() { testutil.Register("writer", writer) }

// writer is another process that writes into a segment, and then dies or ends as it is told.
func writer([]string) {
	s, err := shm.Open(testutil.File(0), true)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	copy(s.Bytes(), "written elsewhere")
	fmt.Println("written", s.Size(), s.Pages())
	var line string
	fmt.Scanln(&line)
}

func TestAnotherProcessWritesAndIsKilled(t *testing.T) {
	eachKind(t, func(t *testing.T, s *shm.Segment) {
		p := testutil.Launch(t, testutil.Child{Role: "writer", Files: []*os.File{s.File()}})
		p.Expect(fmt.Sprintf("written %d %v", s.Size(), s.Pages()))
		p.Kill()
		if got := string(s.Bytes()[:17]); got != "written elsewhere" {
			t.Errorf("got %q", got)
		}
	})
}
