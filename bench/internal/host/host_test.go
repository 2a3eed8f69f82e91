package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// machine writes files below a folder that stands for the kernel's.
func machine(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestSiblingsReadsTheKernelsList(t *testing.T) {
	root := machine(t, map[string]string{
		"cpu0/topology/thread_siblings_list": "0,4\n",
		"cpu1/topology/thread_siblings_list": "nonsense\n",
	})
	for _, c := range []struct {
		a, b int
		want bool
	}{{0, 4, true}, {0, 1, false}, {0, 0, false}, {1, 0, false}, {9, 0, false}} {
		if got := Siblings(root, c.a, c.b); got != c.want {
			t.Errorf("Siblings(%d, %d) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

func TestPairPrefersTwoWholeCores(t *testing.T) {
	root := machine(t, map[string]string{"cpu2/topology/thread_siblings_list": "2-3\n"})
	for _, c := range []struct{ allowed, want []int }{
		{[]int{2, 3, 5}, []int{2, 5}}, {[]int{2, 3}, []int{2, 3}}, {[]int{6, 7}, []int{6, 7}}, {[]int{4}, []int{4, 4}},
	} {
		if got := pair(root, c.allowed); !slices.Equal(got, c.want) {
			t.Errorf("pair of %v = %v, want %v", c.allowed, got, c.want)
		}
	}
}

func TestWarningsNameWhatSpoilsAMeasurement(t *testing.T) {
	root := machine(t, map[string]string{
		"loadavg":                            "1.25 0.50 0.25 1/234 5678\n",
		"quiet":                              "0.10 0.10 0.10 1/234 5678\n",
		"cpu0/topology/thread_siblings_list": "0-1\n",
		"cpu1/cpufreq/scaling_governor":      "powersave\n",
		"cpu2/cpufreq/scaling_governor":      "performance\n",
	})
	for _, c := range []struct {
		load  string
		cores []int
		want  []string // a part of each warning, in order
	}{
		{"quiet", []int{2, 3}, nil},
		{"loadavg", []int{2, 3}, []string{"load average is 1.25"}},
		{"quiet", []int{3, 3}, []string{"both processes run on core 3"}},
		{"quiet", []int{-1, -1}, []string{"not pinned"}},
		{"quiet", []int{0, 1}, []string{"threads of one core", "governor powersave"}},
		{"missing", []int{2, 2}, []string{"both processes run on core 2"}},
	} {
		got := warnings(filepath.Join(root, c.load), root, c.cores)
		if len(got) != len(c.want) {
			t.Errorf("%v: %q, want %d warnings", c.cores, got, len(c.want))
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], c.want[i]) {
				t.Errorf("%v: %q does not say %q", c.cores, got[i], c.want[i])
			}
		}
	}
}

func TestPageWarningIsForLargeRingsOnSmallPages(t *testing.T) {
	for _, c := range []struct {
		pages    string
		capacity int64
		want     bool
	}{{"4KiB", 64 << 20, true}, {"4KiB", 1 << 20, false}, {"2MiB", 64 << 20, false}, {"thp", 64 << 20, false}} {
		if got := PageWarning(c.pages, c.capacity) != ""; got != c.want {
			t.Errorf("%s, %d bytes: warns %v, want %v", c.pages, c.capacity, got, c.want)
		}
	}
}
