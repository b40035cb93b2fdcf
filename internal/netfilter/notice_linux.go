package netfilter

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// Constants of include/uapi/linux/netfilter/nf_tables.h and nfnetlink.h.
const (
	subsystem       = unix.NFNL_SUBSYS_NFTABLES
	headerSize      = 4                // struct nfgenmsg
	attributeFirst  = unix.NFTA_GEN_ID // also the table's name in messages about its parts
	attributeHeader = 4
	attributeMask   = 0x3fff
)

// generation counts the commits to all tables of the network namespace. A call takes microseconds.
func generation() (uint32, error) {
	id, err := readGeneration()
	if err != nil {
		return 0, fmt.Errorf("asking the kernel for nftables' generation: %w", err)
	}
	return id, nil
}

func readGeneration() (uint32, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return 0, err
	}
	request := make([]byte, unix.NLMSG_HDRLEN+headerSize)
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], subsystem<<8|unix.NFT_MSG_GETGEN)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	buffer := make([]byte, os.Getpagesize())
	n, _, err := unix.Recvfrom(fd, buffer, 0)
	if err != nil {
		return 0, err
	}
	messages, err := syscall.ParseNetlinkMessage(buffer[:n])
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		if id := firstAttribute(m); m.Header.Type == subsystem<<8|unix.NFT_MSG_NEWGEN && len(id) == 4 {
			return binary.BigEndian.Uint32(id), nil
		}
	}
	return 0, errors.New("no answer that is one")
}

func firstAttribute(m syscall.NetlinkMessage) []byte {
	rest := m.Data
	if len(rest) < headerSize {
		return nil
	}
	for rest = rest[headerSize:]; len(rest) >= attributeHeader; {
		length, kind := int(binary.NativeEndian.Uint16(rest)), binary.NativeEndian.Uint16(rest[2:])
		if length < attributeHeader || length > len(rest) {
			return nil
		}
		if kind&attributeMask == attributeFirst {
			return rest[attributeHeader:length]
		}
		rest = rest[min((length+3)&^3, len(rest)):]
	}
	return nil
}

// commits tracks whether a table is as this process knows it. Watch may be concurrent.
type commits struct {
	table string
	// generation, which counts commits to all tables, is that at which the content was known.
	generation uint32
	known      bool
	// watching and touched are set by Watch in its own goroutine; touched is the generation of
	// the last commit that may have changed the table.
	watching atomic.Bool
	touched  atomic.Uint32
}

// unchanged reports whether the table at generation now is still as it was known.
func (c *commits) unchanged(now uint32) bool {
	return c.known && (now == c.generation || c.untouched())
}

// untouched reports whether Watch observed no commit to the table since its content was known. A
// commit that Watch has yet to observe triggers another call. Generations wrap around.
func (c *commits) untouched() bool {
	return c.watching.Load() && int32(c.touched.Load()-c.generation) <= 0
}

// commit runs a transaction. If the generation increased by one, that commit is our own, and the
// content stays known. Otherwise another program committed too.
func (c *commits) commit(ctx context.Context, nft knftables.Interface, tx *knftables.Transaction) error {
	known := c.known
	c.known = false
	if err := nft.Run(ctx, tx); err != nil {
		return err
	}
	if now, err := generation(); err == nil && known && now == c.generation+1 {
		c.generation, c.known = now, true
	}
	return nil
}

// Watch calls changed when any program, including this one, may have changed the table, until
// the context is done. Observing the table after our own change lists nothing. While Watch runs,
// commits to other tables cause no listing either.
func (c *commits) Watch(ctx context.Context, changed func()) error {
	events, err := subscribe()
	if err != nil {
		return fmt.Errorf("watching nftables: %w", err)
	}
	defer events.Close()
	defer context.AfterFunc(ctx, func() { _ = events.SetReadDeadline(time.Unix(1, 0)) })()
	notify := func() error {
		now, err := generation()
		c.touched.Store(now)
		changed()
		return err
	}
	// Commits before the subscription were not observed.
	if err := notify(); err != nil {
		return err
	}
	c.watching.Store(true)
	defer c.watching.Store(false)
	buffer := make([]byte, 1<<16)
	for {
		n, err := events.Read(buffer)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, unix.ENOBUFS): // with ENOBUFS, events are lost
			return fmt.Errorf("watching nftables: %w", err)
		case err != nil || concerns(buffer[:n], c.table):
			if err := notify(); err != nil {
				return err
			}
		}
	}
}

func subscribe() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "nftables events")
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)}); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// concerns reports whether the messages are about the table or can't be parsed.
func concerns(datagram []byte, table string) bool {
	messages, err := syscall.ParseNetlinkMessage(datagram)
	if err != nil {
		return true
	}
	for _, m := range messages {
		if m.Header.Type == subsystem<<8|unix.NFT_MSG_NEWGEN {
			continue // only marks the end of a commit
		}
		if string(bytes.TrimRight(firstAttribute(m), "\x00")) == table {
			return true
		}
	}
	return false
}
