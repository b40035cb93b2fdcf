package hcloudsim

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// project is everything that exists behind one token. It is guarded by the
// Simulator's mutex, and now is the time at which it is being looked at.
type project struct {
	opts    Options
	catalog catalog
	now     time.Time
	rand    *rand.Rand

	lastID        int64
	servers       table[*server]
	networks      table[*network]
	loadBalancers table[*loadBalancer]
	certificates  table[*certificate]
	primaryIPs    table[*primaryIP]
	floatingIPs   table[*floatingIP]
	sshKeys       table[*sshKey]
	images        []schema.Image
	actions       actions
	public        publicAddresses

	touched bool // since the observer has looked
	probing int  // how many run health checks
}

func newProject(opts Options) *project {
	now := time.Now()
	return &project{
		opts:    opts,
		catalog: newCatalog(opts.LoadBalancerTypes),
		images:  images(now.UTC().Truncate(time.Second)),
		now:     now,
		rand:    rand.New(rand.NewPCG(opts.Seed, 0)),
		lastID:  1000,
	}
}

// at moves the project to the present: what should have ended by now, has.
func (p *project) at(now time.Time) {
	p.now = now
	p.settle()
}

func (p *project) nextID() int64 {
	p.lastID++
	return p.lastID
}

// base is what servers, networks and load balancers have in common.
type base struct {
	id        int64
	name      string
	labels    map[string]string
	created   time.Time
	protected bool // against deletion
}

func (b *base) common() *base { return b }

// resource is one of them.
type resource interface{ common() *base }

// newBase gives a resource its identity. IDs are never used twice, also not
// for different kinds of resources, so that mixing them up shows.
func (p *project) newBase(name string, labels map[string]string) base {
	return base{id: p.nextID(), name: name, labels: cloneLabels(labels), created: p.now.UTC().Truncate(time.Second)}
}

// table holds resources of one kind in the order of their IDs.
type table[R resource] struct {
	rows []R
}

func (t *table[R]) search(id int64) (int, bool) {
	return slices.BinarySearchFunc(t.rows, id, func(r R, id int64) int {
		return cmp.Compare(r.common().id, id)
	})
}

func (t *table[R]) get(id int64) (R, bool) {
	if i, ok := t.search(id); ok {
		return t.rows[i], true
	}
	var none R
	return none, false
}

// add relies on IDs that only grow.
func (t *table[R]) add(r R) { t.rows = append(t.rows, r) }

func (t *table[R]) remove(id int64) {
	if i, ok := t.search(id); ok {
		t.rows = slices.Delete(t.rows, i, i+1)
	}
}

func (t *table[R]) named(name string) (R, bool) {
	for _, r := range t.rows {
		if r.common().name == name {
			return r, true
		}
	}
	var none R
	return none, false
}

// nameFree reports whether a resource may be called name; self is the one that
// already is, or 0.
func (t *table[R]) nameFree(name string, self int64) error {
	if other, ok := t.named(name); ok && other.common().id != self {
		return errTaken("name", "name")
	}
	return nil
}

// update replaces the name, if there is a new one, and the labels.
func (b *base) update(name string, labels *map[string]string) error {
	if labels != nil {
		if err := checkLabels(*labels); err != nil {
			return err
		}
		b.labels = cloneLabels(*labels)
	}
	if name != "" {
		b.name = name
	}
	return nil
}

// newLabels reads the labels of a request, which may have none.
func newLabels(labels *map[string]string) (map[string]string, error) {
	if labels == nil {
		return nil, nil
	}
	return *labels, checkLabels(*labels)
}

// cloneLabels never returns nil, which would be rendered as null.
func cloneLabels(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels))
	maps.Copy(out, labels)
	return out
}
