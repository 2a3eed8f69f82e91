package report

import (
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }
