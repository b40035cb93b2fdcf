//go:build !linux

package main

import (
	"context"
	"errors"
	"io"
)

var errNotLinux = errors.New("this is not Linux")

func noPackets() string { return errNotLinux.Error() + ", and network namespaces are" }

func (t *terminal) sendPackets(context.Context, string, string, string) error { return errNotLinux }

func packetsShown(context.Context, string, io.Writer) int { return 1 }
