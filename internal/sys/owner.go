package sys

import (
	"io/fs"
	"syscall"
)

// FileInode is the inode of a file; ok is false as for Owner.
func FileInode(info fs.FileInfo) (n Inode, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Inode{}, false
	}
	return Inode{Device: stat.Dev, Number: stat.Ino}, true
}

// Owner is the user id that a file belongs to; ok is false where info does not come from this host's file system.
func Owner(info fs.FileInfo) (uid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}
