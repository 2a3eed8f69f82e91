package keeper

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const unitDir = "../../contrib/systemd"

// unit reads a unit file: the last value of each key.
func unit(t *testing.T, name string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(unitDir, name))
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			values[key] = value
		}
	}
	return values
}

// TestUnitFiles checks what this package relies on in them.
func TestUnitFiles(t *testing.T) {
	service, socket := unit(t, "hugebus.service"), unit(t, "hugebus.socket")
	for key, want := range map[string]string{
		"Type": "notify", "NotifyAccess": "main", "FileDescriptorStorePreserve": "yes", "Restart": "on-failure", "StartLimitIntervalSec": "0",
		"Environment": storeEnv + "=" + service["FileDescriptorStoreMax"], "LimitMEMLOCK": "infinity", "RuntimeDirectoryPreserve": "yes",
		"Requires": ListenerName,
	} {
		if service[key] != want {
			t.Errorf("hugebus.service: %s=%s, want %s", key, service[key], want)
		}
	}
	most, err := strconv.Atoi(service["FileDescriptorStoreMax"])
	files, err2 := strconv.Atoi(service["LimitNOFILE"])
	if err != nil || err2 != nil || most < 1000*6 || files < 3*most {
		t.Errorf("FileDescriptorStoreMax=%d, LimitNOFILE=%d", most, files)
	}
	if path := socket["ListenSequentialPacket"]; !strings.Contains(service["ExecStart"], " --socket "+path+" ") {
		t.Errorf("the socket is %s, the service has %s", path, service["ExecStart"])
	}
	// Inherited.Listener looks for the socket unit's name, which is the default.
	if name, set := socket["FileDescriptorName"]; set && name != ListenerName {
		t.Errorf("hugebus.socket: FileDescriptorName=%s", name)
	}
}

// TestUnitFilesAreValid asks systemd itself where it is installed. It does not mind that this machine has neither the
// program nor the user.
func TestUnitFilesAreValid(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze here: ", err)
	}
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", filepath.Join(unitDir, "hugebus.service"), filepath.Join(unitDir, "hugebus.socket")).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		known := strings.Contains(line, "/usr/bin/hugebus is not executable") || strings.Contains(line, "Failed to create") ||
			strings.Contains(line, "FileDescriptorStorePreserve") // before systemd 254
		if strings.Contains(line, "hugebus.") && !known {
			t.Error(line)
		}
	}
	t.Logf("%v\n%s", err, out)
}
