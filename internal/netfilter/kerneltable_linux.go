package netfilter

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// Constants of include/uapi/linux/netfilter/nf_tables.h.
const (
	getGeneration  = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN
	newGeneration  = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN
	firstAttribute = unix.NFTA_GEN_ID // also the table's name in messages about its parts
	attributeMask  = 0x3fff
)

// generation counts the commits to all tables of the network namespace. A call takes microseconds.
func generation() (uint32, error) {
	request := nl.NewNetlinkRequest(getGeneration, 0)
	request.AddData(&nl.Nfgenmsg{})
	replies, err := request.Execute(unix.NETLINK_NETFILTER, newGeneration)
	for _, reply := range replies {
		if id := firstValue(reply); len(id) == 4 {
			return binary.BigEndian.Uint32(id), nil
		}
	}
	return 0, fmt.Errorf("requesting the generation of nftables: %w",
		cmp.Or(err, errors.New("no valid reply")))
}

// firstValue returns the value of a message's first attribute, or nil.
func firstValue(message []byte) []byte {
	if len(message) < nl.SizeofNfgenmsg {
		return nil
	}
	attributes, _ := nl.ParseRouteAttr(message[nl.SizeofNfgenmsg:])
	for _, a := range attributes {
		if a.Attr.Type&attributeMask == firstAttribute {
			return a.Value
		}
	}
	return nil
}

// kernelTable is a table in the kernel, and whether its content is known to this process. Only
// Watch may be concurrent.
type kernelTable struct {
	name string
	nft  knftables.Interface
	// generation is that at which the content was known, and own are the later ones of our own
	// commits.
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

// openTable checks that nft works; it changes nothing.
func openTable(name string) (*kernelTable, error) {
	nft, err := knftables.New(knftables.InetFamily, name)
	if err != nil {
		return nil, fmt.Errorf("preparing the nftables table %s: %w; the program nft, 1.0.1 or newer, has to be on the PATH, and the capability NET_ADMIN given", name, err)
	}
	return &kernelTable{name: name, nft: nft}, nil
}

// list returns the parts of the table, such as "chain leaving", with their lines, without elements
// and counters. It returns nil without a table. The content of the table is known then.
func (t *kernelTable) list(ctx context.Context) (parts map[string][]string, err error) {
	t.known = false
	t.mu.Lock()
	t.lost = false // before the list, which makes up for lost events
	t.mu.Unlock()
	now, err := generation()
	if err != nil {
		return nil, err
	}
	const family = string(knftables.InetFamily)
	text, err := output(ctx, "list", "tables", family)
	if err == nil && slices.Contains(strings.Split(text, "\n"), "table "+family+" "+t.name) {
		// knftables lists neither the text of rules nor the properties of chains.
		text, err = output(ctx, "--stateless", "--terse", "list", "table", family, t.name)
		parts = partsOf(text)
	}
	if err != nil {
		return nil, fmt.Errorf("listing the nftables table %s: %w", t.name, err)
	}
	t.learned(now)
	return parts, nil
}

// learned notes that the content is that of a generation.
func (t *kernelTable) learned(now uint32) {
	t.generation, t.own, t.known = now, nil, true
	t.mu.Lock()
	defer t.mu.Unlock()
	t.touched = slices.DeleteFunc(t.touched, func(g uint32) bool { return int32(g-now) <= 0 })
}

// output runs nft and returns its output.
func output(ctx context.Context, args ...string) (string, error) {
	text, err := exec.CommandContext(ctx, "nft", args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return string(text), err
}

// unchanged reports whether the table still has the content that is known, if any.
func (t *kernelTable) unchanged() (bool, error) {
	now, err := generation()
	return err == nil && t.known && (now == t.generation || t.untouched()), err
}

// untouched reports whether Watch observed no commit to the table since its content was known,
// except our own. A commit that Watch has yet to observe triggers another call. Generations wrap
// around.
func (t *kernelTable) untouched() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	foreign := func(g uint32) bool { return int32(g-t.generation) > 0 && !slices.Contains(t.own, g) }
	if !t.watching.Load() || t.lost || slices.ContainsFunc(t.touched, foreign) {
		return false
	}
	for _, g := range t.touched {
		t.own = slices.DeleteFunc(t.own, func(o uint32) bool { return o == g })
	}
	t.touched = nil
	return true
}

// commit runs a transaction. If the generation increased by one, that commit is our own, and the
// content stays known. Otherwise another program committed too, maybe to this table.
func (t *kernelTable) commit(ctx context.Context, tx *knftables.Transaction) error {
	known := t.known
	t.known = false
	before, err := generation()
	if err != nil {
		return err
	}
	if err := t.nft.Run(ctx, tx); err != nil {
		return err
	}
	now, err := generation()
	if err != nil || !known || now != before+1 {
		return nil
	}
	switch {
	case before == t.generation:
		t.learned(now)
	case t.watching.Load():
		t.own, t.known = append(t.own, now), true
	}
	return nil
}

// Watch calls changed when any program, including this one, may have changed the table, until
// the context is done. Observing the table after our own change lists nothing. While Watch runs,
// commits to other tables cause no listing either.
func (t *kernelTable) Watch(ctx context.Context, changed func()) error {
	events, err := nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return fmt.Errorf("watching nftables: %w", err)
	}
	defer events.Close()
	defer context.AfterFunc(ctx, events.Close)()
	notify := func(now uint32, lost bool) {
		t.mu.Lock()
		t.touched, t.lost = append(t.touched, now), t.lost || lost
		t.mu.Unlock()
		changed()
	}
	// Commits before the subscription were not observed.
	now, err := generation()
	if err != nil {
		return err
	}
	notify(now, false)
	t.watching.Store(true)
	defer t.watching.Store(false)
	concerned := false // by the current commit, which ends with its generation
	for {
		messages, _, err := events.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS): // events are lost
			notify(0, true)
			concerned = false
		case err != nil:
			return fmt.Errorf("watching nftables: %w", err)
		}
		for _, m := range messages {
			value := firstValue(m.Data)
			if m.Header.Type != newGeneration {
				concerned = concerned || string(bytes.TrimRight(value, "\x00")) == t.name
				continue
			}
			if concerned && len(value) == 4 {
				notify(binary.BigEndian.Uint32(value), false)
			}
			concerned = false
		}
	}
}
