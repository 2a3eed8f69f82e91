package sys

import "testing"

const (
	limitMounts2 = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	limitMounts1 = "31 1 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n32 1 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
)

func TestCgroupTasksAndCPUOfVersion2(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": limitMounts2,
		"sys/fs/cgroup/a/b/pids.max": "max\n", "sys/fs/cgroup/a/b/pids.current": "7\n",
		"sys/fs/cgroup/a/pids.max": "100\n", "sys/fs/cgroup/a/pids.current": "40\n",
		"sys/fs/cgroup/a/b/cpu.max": "150000 100000\n", "sys/fs/cgroup/a/cpu.max": "max 100000\n",
	})
	left, source, limited := cgroupTasks(root)
	if left != 60 || !limited || source != "/sys/fs/cgroup/a/pids.max less what is used" {
		t.Errorf("tasks: %d, %q, %v", left, source, limited)
	}
	cpus, source, limited := cgroupCPU(root)
	if cpus != 1.5 || !limited || source != "/sys/fs/cgroup/a/b/cpu.max" {
		t.Errorf("cpu: %v, %q, %v", cpus, source, limited)
	}
}

func TestCgroupTasksAndCPUOfVersion1(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/self/cgroup": "1:cpu:/a\n2:pids:/a\n", "proc/self/mountinfo": limitMounts1,
		"sys/fs/cgroup/pids/a/pids.max": "10\n", "sys/fs/cgroup/pids/a/pids.current": "4\n",
		"sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
		"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
	})
	if left, _, limited := cgroupTasks(root); left != 6 || !limited {
		t.Errorf("tasks: %d, %v", left, limited)
	}
	cpus, source, limited := cgroupCPU(root)
	if cpus != 0.5 || !limited || source != "/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us" {
		t.Errorf("cpu: %v, %q, %v", cpus, source, limited)
	}
}

func TestCgroupsWithoutLimits(t *testing.T) {
	for name, root := range map[string]string{
		"no cgroups": t.TempDir(),
		"no limits":  tree(t, map[string]string{"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": limitMounts2}),
		"bad text": tree(t, map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": limitMounts2, "sys/fs/cgroup/cpu.max": "100000\n",
		}),
	} {
		if _, _, limited := cgroupTasks(root); limited {
			t.Errorf("%s: a limit of tasks", name)
		}
		if _, _, limited := cgroupCPU(root); limited {
			t.Errorf("%s: a limit of cpu", name)
		}
	}
}
