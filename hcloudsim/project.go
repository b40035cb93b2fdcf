package hcloudsim

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
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
	addresses     uint32 // number of allocated public addresses
	// creating are the objects that running actions are adding. They are reserved, not yet shown.
	creating map[any]bool

	touched bool // since the observer last collected the state
	probing int  // number of running RunHealthChecks calls
}

func newProject(opts Options) *project {
	now := time.Now()
	return &project{
		opts: opts, catalog: newCatalog(), images: images(now.UTC().Truncate(time.Second)), now: now,
		rand: rand.New(rand.NewPCG(opts.Seed, 0)), lastID: 1000, creating: map[any]bool{},
	}
}

// shown returns the objects that no running action is still adding.
func shown[T comparable](p *project, all []T) []T {
	if len(p.creating) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return p.creating[one] })
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
func (p *project) newBase(b base) base {
	created := p.now.UTC().Truncate(time.Second)
	return base{id: p.nextID(), name: b.name, labels: cloneLabels(b.labels), created: created}
}

type ref struct {
	kind string
	id   int64
}

// busy reports whether a running action holds the resource.
func (p *project) busy(on ref) bool {
	return slices.ContainsFunc(p.actions.running, func(a *action) bool {
		return slices.Contains(a.holds, on)
	})
}

// idle returns an error if a running action holds one of the resources.
func (p *project) idle(on ...ref) error {
	for _, r := range on {
		if p.busy(r) {
			return errBusy(p.opts.Busy, r)
		}
	}
	return nil
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

func (t *table[R]) get(id int64) (r R, there bool) {
	i, there := t.search(id)
	if there {
		r = t.rows[i]
	}
	return r, there
}

// must returns the resource with an ID, or a not_found error.
func must[R resource](t *table[R], kind string, id int64) (R, error) {
	r, there := t.get(id)
	if !there {
		return r, errNotFound(kind, id)
	}
	return r, nil
}

// add appends r; it relies on increasing IDs.
func (t *table[R]) add(r R) { t.rows = append(t.rows, r) }

func (t *table[R]) remove(id int64) {
	if i, ok := t.search(id); ok {
		t.rows = slices.Delete(t.rows, i, i+1)
	}
}

// without returns a list without an object.
func without[T comparable](all []T, one T) []T {
	return slices.DeleteFunc(all, func(other T) bool { return other == one })
}

// first returns the first object that a condition holds for, or the zero value.
func first[T any](all []T, is func(T) bool) (found T) {
	if i := slices.IndexFunc(all, is); i >= 0 {
		found = all[i]
	}
	return found
}

// ids returns the IDs of the resources that a condition holds for.
func ids[R resource](t *table[R], of func(R) bool) []int64 {
	found := []int64{}
	for _, r := range t.rows {
		if of(r) {
			found = append(found, r.common().id)
		}
	}
	return found
}

// set assigns the requested value, if there is one.
func set[T any](value *T, given *T) {
	if given != nil {
		*value = *given
	}
}

// cloneLabels returns a copy, which is never nil: nil would be rendered as null.
func cloneLabels(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels))
	maps.Copy(out, labels)
	return out
}

// checkLabels validates labels against the grammar in the API's introduction, which is that of
// Kubernetes.
func checkLabels(all map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		switch {
		case len(validation.IsQualifiedName(key)) > 0:
			return errInvalid("labels", "'%s' is no label key", key)
		case strings.HasPrefix(key, "hetzner.cloud/"):
			return errInvalid("labels", "the prefix of '%s' is reserved", key)
		case len(validation.IsValidLabelValue(all[key])) > 0:
			return errInvalid("labels", "the value of '%s' is no label value", key)
		}
	}
	return nil
}

func newLabels(requested *map[string]string) (map[string]string, error) {
	if requested == nil {
		return nil, nil
	}
	return *requested, checkLabels(*requested)
}
