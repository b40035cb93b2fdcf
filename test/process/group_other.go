//go:build !linux

package process

import "syscall"

// ownGroup puts a program into its own process group, so that Ctrl-C reaches it
// only through us.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
