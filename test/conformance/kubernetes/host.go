//go:build linux

package main

import "golang.org/x/sys/unix"

// labelSCTP is that of specs that send SCTP.
const labelSCTP = "Feature:SCTPConnectivity"

// lacking says what the host lacks that a spec needs; empty: nothing.
func lacking(s spec) string {
	if !s.is(labelSCTP) {
		return ""
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return "the host's kernel has no SCTP"
	}
	_ = unix.Close(socket)
	return ""
}
