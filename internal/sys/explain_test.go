package sys_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

func TestExplainNamesLimitAndRemedy(t *testing.T) {
	other := errors.New("other")
	if sys.Explain(nil) != nil || sys.Explain(other) != other {
		t.Error("changes what it does not know")
	}
	for errno, want := range map[error]string{unix.EMFILE: fmt.Sprintf("%d open files (RLIMIT_NOFILE)", sys.FileLimit()), unix.ENFILE: "fs.file-max"} {
		if err := sys.Explain(fmt.Errorf("open: %w", errno)); !errors.Is(err, errno) || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
	if sys.FileLimit() == 0 {
		t.Error("no limit of files")
	}
}
