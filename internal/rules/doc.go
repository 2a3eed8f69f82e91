// Package rules holds the repository's rules as checks over its source tree; go test runs them over this one.
//
//   - imports: packages import only what lies below them (see layers), the data path only what it may
//   - unsafe: only in files named *_unsafe.go and *_unsafe_test.go
//   - system-calls: functions of x/sys/unix and syscall only in internal/sys and shm
//   - foreign: no cgo, no go:linkname
//   - clock: time.Now is not turned into wall-clock time, which jumps, where something is measured
//   - size: files and functions stay readable
//   - sync: every named ordering pair SYNC(name) has a release and an acquire side, and a place in docs/memory-model.md
//   - docs: every package, and every exported name outside internal, has a doc comment
//   - text: nothing is left open, and nothing names a machine or a person's folder
//
// A rule that is wrong for good reason is changed here, with the reason, and not worked around.
package rules
