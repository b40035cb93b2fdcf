//go:build !linux

package process

import "syscall"

// OwnGroup, as a command's SysProcAttr, puts a program into its own process group, so that Ctrl-C
// reaches it only through its parent.
func OwnGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
