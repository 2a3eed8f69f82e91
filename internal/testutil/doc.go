// Package testutil is what the tests of all packages share: leak checks and a watchdog around a test binary, the test
// binary itself as other processes in named roles, builds with tags, aligned memory, seeds.
//
// A package uses it from its TestMain:
//
//	func init() { testutil.Register("reader", reader) }
//
//	func TestMain(m *testing.M) { testutil.Main(m) }
//
//	func TestReaderDies(t *testing.T) {
//		p := testutil.Start(t, "reader", "arg")
//		if p.Line() != "ready" { … }
//		p.Signal(os.Kill)
//		p.Wait()
//	}
package testutil
