package project

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// sweepEvery is between two rounds of removing, sweepMost how long it is tried.
	sweepEvery, sweepMost = time.Second, 10 * time.Minute
	// lateMost is how long something may come to be after the reply was lost.
	lateMost = 10 * time.Second
	// addressesMost is how long public addresses may stay after what they came with.
	addressesMost = time.Minute
)

const sshKeys = "ssh_keys"

// kinds are the collections of what is made here, in an order in which they can be removed, and,
// behind them, of what else a project must not have.
var kinds = [...]string{
	"load_balancers", "servers", "floating_ips", "primary_ips", "networks", sshKeys, "firewalls", "volumes",
}

// Thing is a resource of the project.
type Thing struct {
	Kind string // its collection
	ID   int64
	Name string
	ours bool
}

// String is for people.
func (t Thing) String() string {
	kind := strings.NewReplacer("_", " ", "ip", "IP", "ssh", "SSH").Replace(strings.TrimSuffix(t.Kind, "s"))
	return fmt.Sprintf("%s %s (ID %d)", kind, t.Name, t.ID)
}

func (t Thing) path() string { return fmt.Sprintf("/%s/%d", t.Kind, t.ID) }

// Existing is everything in the project but SSH keys, which nothing that is measured depends on. An
// error means that it isn't the whole.
func (p *Project) Existing(ctx context.Context) ([]Thing, error) {
	all, err := p.all(ctx)
	return slices.DeleteFunc(all, func(t Thing) bool { return t.Kind == sshKeys }), err
}

// Leftovers are what was made here and not removed.
func (p *Project) Leftovers(ctx context.Context) ([]Thing, error) {
	all, err := p.all(ctx)
	return slices.DeleteFunc(all, func(t Thing) bool { return !t.ours }), err
}

func (p *Project) all(ctx context.Context) (all []Thing, err error) {
	for _, kind := range kinds {
		for page := 1; page != 0; {
			path := fmt.Sprintf("/%s?page=%d&per_page=50", kind, page)
			var reply map[string]json.RawMessage
			err := p.ask(ctx, http.MethodGet, path, &reply)
			if hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
				break // not an API that has it
			}
			var rows []struct {
				ID     int64
				Name   string
				Labels map[string]string
			}
			var meta struct {
				Pagination struct {
					Next int `json:"next_page"` // 0: this is the last
				}
			}
			if err == nil {
				err = errors.Join(json.Unmarshal(reply[kind], &rows), json.Unmarshal(reply["meta"], &meta))
			}
			if err != nil {
				return nil, fmt.Errorf("listing %s: %w", kind, err)
			}
			for _, r := range rows {
				_, labeled := r.Labels[Label]
				all = append(all, Thing{kind, r.ID, r.Name, labeled && strings.HasPrefix(r.Name, namePrefix)})
			}
			page = meta.Pagination.Next
		}
	}
	return all, nil
}

// ask sends a request without a body.
func (p *Project) ask(ctx context.Context, method, path string, into any) error {
	r, err := p.client.NewRequest(ctx, method, path, nil)
	if err != nil {
		return err
	}
	_, err = p.client.Do(r, into)
	return err
}

// Sweep removes what was made here. It looks and removes again and again, until two looks one after
// the other have shown nothing: things can be locked, replies can be lost, and what was asked for
// last can come to be later. It ends after ten minutes, or with ctx; the error names what is left.
func (p *Project) Sweep(ctx context.Context) (removed int, err error) {
	why := map[Thing]error{} // of everything that was there
	var left []Thing         // as far as it was known last
	quiet := 0
	late := wait.PollUntilContextTimeout(ctx, sweepEvery, sweepMost, true,
		func(ctx context.Context) (bool, error) {
			var now []Thing
			if now, err = p.Leftovers(ctx); err == nil {
				left = now
			}
			if err == nil && len(left) == 0 {
				quiet++
				return quiet > 1 && (!p.way.lost.Load() || quiet > int(lateMost/sweepEvery)), nil
			}
			quiet = 0
			for _, t := range left {
				_, tried := why[t]
				switch why[t] = p.ask(ctx, http.MethodDelete, t.path(), nil); {
				case why[t] == nil:
					p.progress("removing " + t.String())
				case !tried:
					p.progress(fmt.Sprintf("%s can't be removed yet: %v", t, why[t]))
				}
			}
			return false, nil
		})
	if late != nil {
		return len(why) - len(left), leftBehind(left, why, errors.Join(err, context.Cause(ctx)))
	}
	return len(why), nil
}

// Emptied waits, for a minute at most, until the project is empty: public addresses are removed by the
// API with what they came with, and bear no label. The error names what is left.
func (p *Project) Emptied(ctx context.Context) error {
	var left []Thing
	var err error
	late := wait.PollUntilContextTimeout(ctx, sweepEvery, addressesMost, true,
		func(ctx context.Context) (bool, error) {
			left, err = p.Existing(ctx)
			return err == nil && len(left) == 0, nil
		})
	if late != nil {
		return leftBehind(left, nil, err)
	}
	return nil
}

// leftBehind says what wasn't removed.
func leftBehind(left []Thing, why map[Thing]error, unknown error) error {
	errs := []error{unknown}
	for _, t := range left {
		if why[t] != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t, why[t]))
		} else {
			errs = append(errs, errors.New(t.String()))
		}
	}
	return fmt.Errorf("not everything was removed from the project, and it costs until it is: %w",
		errors.Join(errs...))
}
