package netfilter

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

const tableName = "underlay"

// podLinks is how the names of pods' interfaces begin, as the CNI plugin ptp names them.
const podLinks = "veth"

// ErrDown is wrapped by the error of Apply if the node's pods have no packet filter now. After
// any other error, an earlier version of the rules is in effect.
var ErrDown = errors.New("no packet filter stands")

// Table manages the nftables table in the caller's network namespace. Only Watch may be
// concurrent.
type Table struct {
	*kernelTable
	last found // content of the table, if known
	// unjudged means that connections may have begun without the rules.
	unjudged bool
}

// New checks that nft works; it changes nothing.
func New() (*Table, error) {
	t, err := openTable(tableName)
	if err != nil {
		return nil, err
	}
	return &Table{kernelTable: t}, nil
}

// Plan returns the changes that Apply would make, one line each.
func (t *Table) Plan(ctx context.Context, want Desired) (changes, warnings []string, err error) {
	have, err := t.observe(ctx)
	if err != nil {
		return nil, nil, err
	}
	return diff(rulesFor(want), have).lines(), nil, nil
}

// Apply sets the table to the desired state in one transaction and returns a line per change. It
// deletes the conntrack entries of connections that began without the rules, so that their next
// packet is matched as the first of a connection.
func (t *Table) Apply(ctx context.Context, want Desired) (changed, warnings []string, err error) {
	p, err := t.put(ctx, rulesFor(want))
	if err != nil {
		return nil, nil, err
	}
	changed = p.lines()
	t.unjudged = t.unjudged || p.rebuild != "" || p.rules != ""
	if !t.unjudged {
		return changed, nil, nil
	}
	n, err := deleteConnections(stalenessOf(want))
	if n > 0 {
		changed = append(changed,
			fmt.Sprintf("%d connections that began without the packet filter are forgotten", n))
	}
	if err != nil { // the next call retries
		return changed, []string{fmt.Sprintf("forgetting connections that began without the packet filter: %v; until they end they keep the way that they have", err)}, nil
	}
	t.unjudged = false
	return changed, nil, nil
}

// Cleanup removes the table and returns a line if it existed.
func (t *Table) Cleanup(ctx context.Context) (changed []string, err error) {
	t.known = false
	p, err := t.put(ctx, ruleset{})
	return p.lines(), err
}

// put commits the difference to rules and returns the plan that it applied.
func (t *Table) put(ctx context.Context, rules ruleset) (plan, error) {
	have, err := t.observe(ctx)
	if err != nil {
		return plan{}, err
	}
	p := diff(rules, have)
	if p.rules != "" || len(p.edits) > 0 {
		if err := t.run(ctx, p, rules); err == nil {
			return p, nil
		}
		// Another program replaced a chain, or a set changed concurrently.
		p = plan{rebuild: "it could not be changed in place"}
	}
	if p.rebuild == "" && !p.remove {
		return p, nil
	}
	if err := t.run(ctx, p, rules); err != nil {
		err = fmt.Errorf("changing the nftables table %s: %w", tableName, err)
		if p.rebuild != "" && !stands(rules, have) {
			err = fmt.Errorf("%w: %w", ErrDown, err)
		}
		return plan{}, err
	}
	return p, nil
}

// run commits a plan that results in rules.
func (t *Table) run(ctx context.Context, p plan, rules ruleset) error {
	tx := t.nft.NewTransaction()
	p.fill(tx, rules)
	t.last = rules.found()
	return t.commit(ctx, tx)
}

// observe returns the content of the table, and lists it only after a commit.
func (t *Table) observe(ctx context.Context) (found, error) {
	if same, err := t.unchanged(); err != nil || same {
		return t.last, err
	}
	parts, err := t.list(ctx)
	if err != nil {
		return found{}, err
	}
	t.last = found{parts: parts, sets: map[string][]string{}}
	for part := range parts {
		name, isSet := strings.CutPrefix(part, setPart)
		if !isSet {
			continue
		}
		listed, err := t.nft.ListElements(ctx, "set", name)
		if err != nil {
			t.known = false
			return found{}, fmt.Errorf("listing the set %s of nftables table %s: %w", name, tableName, err)
		}
		all := []string{}
		for _, e := range listed {
			all = append(all, elementOf(e.Key))
		}
		t.last.sets[name] = all
	}
	return t.last, nil
}
