package netfilter

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
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
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{
		Sec: 5,
	}); err != nil {
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
	return 0, errors.New("no valid reply")
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
	// generation, which counts commits to all tables, is that at which the content was known, and
	// own are the later ones of our own commits.
	generation uint32
	own        []uint32
	known      bool

	watching atomic.Bool
	mu       sync.Mutex
	// touched are the generations of observed commits that changed the table, and lost means that
	// some were not observed; both since they were last compared with what is known.
	touched []uint32
	lost    bool
}

// learning is called before the content is read or replaced, which makes up for lost events.
func (c *commits) learning() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = false
}

// learned notes that the content is that of a generation.
func (c *commits) learned(now uint32) { c.generation, c.own, c.known = now, nil, true }

// unchanged reports whether the table at generation now is still as it was known.
func (c *commits) unchanged(now uint32) bool {
	return c.known && (now == c.generation || c.untouched())
}

// untouched reports whether Watch observed no commit to the table since its content was known,
// except our own. A commit that Watch has yet to observe triggers another call. Generations wrap
// around.
func (c *commits) untouched() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	foreign := func(g uint32) bool { return int32(g-c.generation) > 0 && !slices.Contains(c.own, g) }
	if !c.watching.Load() || c.lost || slices.ContainsFunc(c.touched, foreign) {
		return false
	}
	for _, g := range c.touched {
		c.own = slices.DeleteFunc(c.own, func(o uint32) bool { return o == g })
	}
	c.touched = nil
	return true
}

// commit runs a transaction. If the generation increased by one, that commit is our own, and the
// content stays known. Otherwise another program committed too, maybe to this table.
func (c *commits) commit(
	ctx context.Context, nft knftables.Interface, tx *knftables.Transaction,
) error {
	known := c.known
	c.known = false
	before, err := generation()
	if err != nil {
		return err
	}
	if err := nft.Run(ctx, tx); err != nil {
		return err
	}
	now, err := generation()
	if err != nil || !known || now != before+1 {
		return nil
	}
	switch {
	case before == c.generation:
		c.generation, c.known = now, true
	case c.watching.Load():
		c.own, c.known = append(c.own, now), true
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
	notify := func(now uint32, lost bool) {
		c.mu.Lock()
		c.touched, c.lost = append(c.touched, now), c.lost || lost
		c.mu.Unlock()
		changed()
	}
	// Commits before the subscription were not observed.
	now, err := generation()
	if err != nil {
		return err
	}
	notify(now, false)
	c.watching.Store(true)
	defer c.watching.Store(false)
	buffer := make([]byte, 1<<16)
	batch := batch{table: c.table}
	for {
		n, err := events.Read(buffer)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, unix.ENOBUFS): // with ENOBUFS, events are lost
			return fmt.Errorf("watching nftables: %w", err)
		case err != nil || !batch.read(buffer[:n]):
			notify(0, true)
			batch.concerns = false
		default:
			for _, g := range batch.ended() {
				notify(g, false)
			}
		}
	}
}

func subscribe() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "nftables events")
	if err := unix.Bind(fd, &unix.SockaddrNetlink{
		Family: unix.AF_NETLINK, Groups: 1 << (unix.NFNLGRP_NFTABLES - 1),
	}); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// batch follows the messages of commits, each of which ends with its generation.
type batch struct {
	table    string
	concerns bool // a message of the current commit is about the table
	changed  []uint32
}

// read reads a datagram, and reports whether it could be parsed.
func (b *batch) read(datagram []byte) bool {
	messages, err := syscall.ParseNetlinkMessage(datagram)
	for _, m := range messages {
		first := firstAttribute(m)
		if m.Header.Type != subsystem<<8|unix.NFT_MSG_NEWGEN {
			b.concerns = b.concerns || string(bytes.TrimRight(first, "\x00")) == b.table
			continue
		}
		if b.concerns && len(first) == 4 {
			b.changed = append(b.changed, binary.BigEndian.Uint32(first))
		}
		b.concerns = false
	}
	return err == nil
}

// ended returns the generations of the commits to the table that ended since the last call.
func (b *batch) ended() []uint32 {
	changed := b.changed
	b.changed = nil
	return changed
}
