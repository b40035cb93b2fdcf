package hcloudsim

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// project holds all resources behind one token. The Simulator's mutex guards it.
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
	images        table[*image]
	volumes       table[*volume]
	firewalls     table[*firewall]
	groups        table[*placementGroup]
	actions       actions
	public        publicAddresses

	touched bool // since the observer last collected the state
	probing int  // number of running RunHealthChecks calls
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

// at advances the project to the present and ends all actions that are due.
func (p *project) at(now time.Time) {
	p.now = now
	p.settle()
}

func (p *project) nextID() int64 {
	p.lastID++
	return p.lastID
}

type base struct {
	id        int64
	name      string
	labels    map[string]string
	created   time.Time
	protected bool // against deletion
}

func (b *base) common() *base { return b }

type resource interface{ common() *base }

// newBase returns the identity of a new resource. IDs are never reused, not even across kinds of
// resources, so that confusing them is detected.
func (p *project) newBase(name string, labels map[string]string) base {
	return base{id: p.nextID(), name: name, labels: cloneLabels(labels), created: p.now.UTC().Truncate(time.Second)}
}

// table holds the resources of one kind, sorted by ID.
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

// add appends r; it relies on increasing IDs.
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

// nameFree returns an error if a resource other than the one with the ID self has the name.
func (t *table[R]) nameFree(name string, self int64) error {
	if other, ok := t.named(name); ok && other.common().id != self {
		return errTaken("name", "name")
	}
	return nil
}

// update replaces the name if it is not empty, and the labels if they are not nil.
func (b *base) update(name string, labels *map[string]string) {
	if labels != nil {
		b.labels = cloneLabels(*labels)
	}
	b.name = cmp.Or(name, b.name)
}

func newLabels(labels *map[string]string) (map[string]string, error) {
	if labels == nil {
		return nil, nil
	}
	return *labels, checkLabels(*labels)
}

// cloneLabels returns a copy, which is never nil: nil would be rendered as null.
func cloneLabels(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels))
	maps.Copy(out, labels)
	return out
}

// newNamed validates the name and the labels of a new resource, which gets its ID later.
func newNamed[R resource](
	t *table[R], rule func(string) error, name string, labels *map[string]string,
) (base, error) {
	if err := cmp.Or(rule(name), t.nameFree(name, 0)); err != nil {
		return base{}, err
	}
	valid, err := newLabels(labels)
	return base{name: name, labels: valid}, err
}
