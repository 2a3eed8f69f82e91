package host

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/internal/sys"
)

// Describe says what the machine is and how it is set, as far as figures depend on it.
// What cannot be found out is left out.
func Describe() []report.Fact {
	var facts []report.Fact
	add := func(name, value string) {
		if value = strings.TrimSpace(value); value != "" {
			facts = append(facts, report.Fact{Name: name, Value: value})
		}
	}
	add("Processor", processor("/proc/cpuinfo"))
	if cores, err := sys.AllowedCPUs(); err == nil {
		add("Cores this process may use", fmt.Sprintf("%d: %v", len(cores), cores))
	}
	add("Isolated cores", read(filepath.Join(DefaultRoot, "isolated")))
	add("Frequency governor", read(filepath.Join(DefaultRoot, "cpu0/cpufreq/scaling_governor")))
	if n, err := sys.MemInfo("MemTotal"); err == nil {
		add("Memory", fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)))
	}
	if total, free, err := sys.NrHugepages(2 << 20); err == nil {
		add("Huge pages of 2 MiB", fmt.Sprintf("%d, %d of them free", total, free))
	}
	if thp, err := sys.THP(); err == nil {
		add("Transparent huge pages", thp)
	}
	if thp, err := sys.ShmemTHP(); err == nil {
		add("Transparent huge pages of shared memory", thp)
	}
	add("Load average", read("/proc/loadavg"))
	add("Kernel", read("/proc/sys/kernel/osrelease"))
	add("Go", fmt.Sprintf("%s %s/%s, GOMAXPROCS %d", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0)))
	return facts
}

func read(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// processor is the model's name, and whether it is a virtual machine's.
func processor(file string) string {
	model, virtual := "", ""
	for line := range strings.Lines(read(file)) {
		name, value, _ := strings.Cut(line, ":")
		switch name = strings.TrimSpace(name); {
		case name == "model name" && model == "":
			model = strings.TrimSpace(value)
		case name == "flags" && strings.Contains(value, " hypervisor"):
			virtual = ", in a virtual machine"
		}
	}
	if model == "" {
		model = runtime.GOARCH
	}
	return model + virtual
}
