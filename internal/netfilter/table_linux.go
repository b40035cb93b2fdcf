package netfilter

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"

	"sigs.k8s.io/knftables"
)

const tableName = "underlay"

// ErrDown is wrapped by the error of Apply if the node's pods have no packet filter now. After
// any other error, an earlier version of the rules is in effect.
var ErrDown = errors.New("no packet filter stands")

// Options configures a Table.
type Options struct {
	// PodLinks is the prefix of pod interfaces' names; default veth, as of the CNI plugin ptp.
	PodLinks string
}

// Table manages the nftables table in the caller's network namespace. Only Watch may be
// concurrent.
type Table struct {
	options Options
	nft     knftables.Interface
	commits
	last found // content of the table, if known
	// unjudged means that connections may have begun without the rules.
	unjudged bool
}

// New checks that nft works; it changes nothing.
func New(o Options) (*Table, error) {
	o.PodLinks = cmp.Or(o.PodLinks, "veth")
	nft, err := knftables.New(knftables.InetFamily, tableName)
	if err != nil {
		return nil, fmt.Errorf("preparing nftables: %w; the program nft, 1.0.1 or newer, has to be on the PATH, and the capability NET_ADMIN given", err)
	}
	return &Table{options: o, nft: nft, commits: commits{table: tableName}}, nil
}

// Plan returns the changes that Apply would make, one line each.
func (t *Table) Plan(ctx context.Context, want Desired) (changes, warnings []string, err error) {
	have, err := t.observe(ctx)
	if err != nil {
		return nil, nil, err
	}
	return diff(rulesFor(want, t.options.PodLinks), have).lines(), nil, nil
}

// Apply sets the table to the desired state in one transaction and returns a line per change. It
// deletes the conntrack entries of connections that began without the rules.
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
		changed = append(changed,
			fmt.Sprintf("%d connections that began without the packet filter are forgotten", n))
	}
	if err != nil { // the next call retries
		return changed, []string{err.Error() + "; until they end they keep the way that they have"}, nil
	}
	t.unjudged = false
	return changed, nil, nil
}

// put commits the difference to rules and returns the plan that it applied.
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
		// Another program replaced a chain, or a set changed concurrently.
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

// Cleanup removes the table and returns a line if it existed.
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

// run commits a transaction that results in rules.
func (t *Table) run(ctx context.Context, tx *knftables.Transaction, rules ruleset) error {
	t.last = rules.found()
	return t.commit(ctx, t.nft, tx)
}

// observe returns the content of the table, and lists it only after a commit.
func (t *Table) observe(ctx context.Context) (found, error) {
	now, err := generation()
	if err != nil {
		return found{}, err
	}
	if t.unchanged(now) {
		return t.last, nil
	}
	t.learning()
	have, err := t.list(ctx)
	if err != nil {
		return found{}, err
	}
	t.last = have
	t.learned(now)
	return have, nil
}

func (t *Table) list(ctx context.Context) (found, error) {
	objects, err := t.nft.ListAll(ctx)
	if knftables.IsNotFound(err) {
		return found{}, nil
	}
	if err != nil {
		return found{}, fmt.Errorf("listing the nftables table %s: %w", tableName, err)
	}
	text, err := show(ctx, tableName)
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

// show returns nft's listing of the table without counters and elements. knftables lists neither
// the text of rules nor the properties of chains.
func show(ctx context.Context, table string) (string, error) {
	return output(ctx, "--stateless", "--terse", "list", "table", string(knftables.InetFamily), table)
}

func output(ctx context.Context, args ...string) (string, error) {
	text, err := exec.CommandContext(ctx, "nft", args...).Output()
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
