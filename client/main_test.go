package client

import (
	"testing"

	"github.com/hugebus/hugebus/internal/keeper/keepertest"
)

func TestMain(m *testing.M) { keepertest.Main(m) }
