package process

import "syscall"

// OwnGroup, as a command's SysProcAttr, puts a program into its own process group, so that Ctrl-C
// reaches it only through its parent, and lets the kernel kill it if the parent dies without a
// cleanup. The kernel watches the thread that started it, not the process: the caller locks its
// goroutine to its thread for as long as the program runs.
func OwnGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
