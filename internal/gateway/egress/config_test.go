package egress

import "testing"

func TestConfigMistakesAreNamed(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"egress: 100000000 writers: give 1 to 1024, or 0 for as many as there are processors, at most 8 (--writers)": func(c *Config) { c.Writers = 100_000_000 },
		"egress: -1 writers: give 1 to 1024, or 0 for as many as there are processors, at most 8 (--writers)":        func(c *Config) { c.Writers = -1 },
		"egress: --recv-buffer is 4294967296: give at most 2147483647, or 0 for the kernel's choice":                 func(c *Config) { c.Socket.RecvBuffer = 4 << 30 },
	} {
		c := Config{Source: newFeed(), Listen: "127.0.0.1:0", Topic: "orders", MaxPayload: 1000}
		change(&c)
		e, err := New(t.Context(), c)
		if err == nil {
			t.Errorf("no error, want %s; %v", want, e.Close())
		} else if err.Error() != want {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
