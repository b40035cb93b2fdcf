package netfilter

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync/atomic"

	"sigs.k8s.io/knftables"
)

// tableName is the name of the table, of the family inet.
const tableName = "underlay"

// ErrDown is what Apply wraps if it failed and the node's pods have no packet
// filter now. Any other error leaves one that was right some time ago.
var ErrDown = errors.New("no packet filter stands")

// Options say what the table can't know by itself.
type Options struct {
	// PodLinks is how the names of pods' interfaces on the node begin; empty:
	// veth, as the plugin ptp names them.
	PodLinks string
}

// Table is our nftables table in the network namespace of the caller. Not safe
// for concurrent use, but for Watch.
type Table struct {
	options Options
	nft     knftables.Interface
	// last is what the table held at a generation of all tables together.
	last       found
	generation uint32
	known      bool
	// unjudged: connections may have begun while the rules did not stand.
	unjudged bool
	// What Watch knows, on a goroutine of its own: the generation of the last
	// commit that may have altered the table.
	watching atomic.Bool
	touched  atomic.Uint32
}

// New finds out whether nft works; it changes nothing.
func New(o Options) (*Table, error) {
	o.PodLinks = cmp.Or(o.PodLinks, "veth")
	nft, err := knftables.New(knftables.InetFamily, tableName)
	if err != nil {
		return nil, fmt.Errorf("preparing nftables: %w; the program nft, 1.0.1 or newer, has to be on the PATH, and the capability NET_ADMIN given", err)
	}
	return &Table{options: o, nft: nft}, nil
}

// Plan says what Apply would change, one line each.
func (t *Table) Plan(ctx context.Context, want Desired) (changes, warnings []string, err error) {
	have, err := t.observe(ctx)
	if err != nil {
		return nil, nil, err
	}
	return diff(rulesFor(want, t.options.PodLinks), have).lines(), nil, nil
}

// Apply makes the table as it should be, in one transaction, and returns a line
// for each change. Where the rules did not stand, it makes the kernel forget the
// connections that began without them.
func (t *Table) Apply(ctx context.Context, want Desired) (changed, warnings []string, err error) {
	rules := rulesFor(want, t.options.PodLinks)
	p, err := t.put(ctx, rules)
	if err != nil {
		return nil, nil, err
	}
	changed = p.lines()
	t.unjudged = t.unjudged || p.rebuild != "" || p.rules != ""
	if !t.unjudged {
		return changed, nil, nil
	}
	n, err := forget(ctx, want)
	if n > 0 {
		changed = append(changed, fmt.Sprintf("%d connections that began without the packet filter are forgotten", n))
	}
	if err != nil { // the next look tries again
		return changed, []string{err.Error() + "; until they end they keep the way that they have"}, nil
	}
	t.unjudged = false
	return changed, nil, nil
}

// put makes the table what the rules say and returns what that took.
func (t *Table) put(ctx context.Context, rules ruleset) (plan, error) {
	have, err := t.observe(ctx)
	if err != nil {
		return plan{}, err
	}
	p := diff(rules, have)
	if p.rules != "" || len(p.edits) > 0 {
		tx := t.nft.NewTransaction()
		amend(tx, rules, p)
		if err := t.run(ctx, tx, rules); err == nil {
			return p, nil
		}
		// A chain that somebody has made another, or a set that has changed since.
		p = plan{rebuild: "it could not be changed in place"}
	}
	switch {
	case p.remove:
		return p, t.remove(ctx)
	case p.rebuild != "":
		tx := t.nft.NewTransaction()
		build(tx, rules)
		if err := t.run(ctx, tx, rules); err != nil {
			err = fmt.Errorf("making the nftables table %s: %w", tableName, err)
			if !stands(rules, have) {
				err = fmt.Errorf("%w: %w", ErrDown, err)
			}
			return plan{}, err
		}
	}
	return p, nil
}

// Cleanup removes the table.
func (t *Table) Cleanup(ctx context.Context) (changed []string, err error) {
	t.known = false
	have, err := t.observe(ctx)
	if err != nil || !have.exists {
		return nil, err
	}
	if err := t.remove(ctx); err != nil {
		return nil, err
	}
	return []string{"nftables table " + tableName + " is removed"}, nil
}

func (t *Table) remove(ctx context.Context) error {
	tx := t.nft.NewTransaction()
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	if err := t.run(ctx, tx, ruleset{}); err != nil {
		return fmt.Errorf("removing the nftables table %s: %w", tableName, err)
	}
	return nil
}

// run commits a transaction after which the table is rules.
func (t *Table) run(ctx context.Context, tx *knftables.Transaction, rules ruleset) error {
	known := t.known
	t.known = false
	if err := t.nft.Run(ctx, tx); err != nil {
		return err
	}
	// One commit further than what is known is our own; any more are somebody
	// else's too, and then it is listed again.
	if now, err := generation(); err == nil && known && now == t.generation+1 {
		t.last, t.generation, t.known = rules.found(), now, true
	}
	return nil
}

// observe lists what the table holds, unless nobody has committed anything since
// the last time.
func (t *Table) observe(ctx context.Context) (found, error) {
	now, err := generation()
	if err != nil {
		return found{}, err
	}
	if t.known && (now == t.generation || t.untouched()) {
		return t.last, nil
	}
	have, err := t.list(ctx)
	if err != nil {
		return found{}, err
	}
	t.last, t.generation, t.known = have, now, true
	return have, nil
}

// untouched reports whether Watch has seen no commit to the table since it was
// listed. One that it has yet to see will call for another look. Generations
// wrap around.
func (t *Table) untouched() bool {
	return t.watching.Load() && int32(t.touched.Load()-t.generation) <= 0
}

func (t *Table) list(ctx context.Context) (found, error) {
	objects, err := t.nft.ListAll(ctx)
	if knftables.IsNotFound(err) {
		return found{}, nil
	}
	if err != nil {
		return found{}, fmt.Errorf("listing what is in the nftables table %s: %w", tableName, err)
	}
	text, err := show(ctx)
	if err != nil {
		return found{}, fmt.Errorf("listing the rules of the nftables table %s: %w", tableName, err)
	}
	have := found{exists: true, parts: partsOf(text), sets: map[string][]element{}}
	for _, name := range objects["set"] {
		if have.sets[name], err = t.elements(ctx, name); err != nil {
			return found{}, err
		}
	}
	return have, nil
}

// show lets nft show the table without counts and elements. The library lists
// neither what rules say nor what chains are.
func show(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "nft", "--stateless", "--terse", "list", "table", string(knftables.InetFamily), tableName)
	text, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return string(text), err
}

func (t *Table) elements(ctx context.Context, set string) ([]element, error) {
	listed, err := t.nft.ListElements(ctx, "set", set)
	if err != nil {
		return nil, fmt.Errorf("listing the set %s of nftables table %s: %w", set, tableName, err)
	}
	out := []element{}
	for _, e := range listed {
		out = append(out, elementOf(e.Key))
	}
	return out, nil
}
