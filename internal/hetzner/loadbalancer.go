package hetzner

import (
	"context"
	"fmt"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/requests"
	"github.com/underlay-ccm/underlay/lb"
)

var _ lb.Backend = (*LoadBalancers)(nil)

// LoadBalancers reads and changes the project's load balancers, which it finds by their labels.
type LoadBalancers struct {
	client *Client
}

// LoadBalancers returns the project's load balancers.
func (c *Client) LoadBalancers() *LoadBalancers { return &LoadBalancers{client: c} }

// Observe finds the owner's load balancer by its labels, in one request. It returns the zero
// State if there is none, and an error that wraps lb.ErrAmbiguous if there is more than one.
func (l *LoadBalancers) Observe(ctx context.Context, owner lb.Owner) (lb.State, error) {
	found, err := l.list(ctx, owner.Selector())
	switch {
	case err != nil:
		return lb.State{}, err
	case len(found) > 1:
		return lb.State{}, fmt.Errorf("load balancers %d and %d: %w", found[0].ID, found[1].ID, lb.ErrAmbiguous)
	case len(found) == 0:
		return lb.State{}, nil
	}
	return found[0], nil
}

// Carrying implements lb.Backend, in one request.
func (l *LoadBalancers) Carrying(ctx context.Context, owner lb.Owner) ([]lb.State, error) {
	return l.list(ctx, owner.Carrier())
}

// List implements lb.Backend, in one request per 50 load balancers.
func (l *LoadBalancers) List(ctx context.Context, cluster string) ([]lb.State, error) {
	return l.list(requests.WithPriority(ctx, requests.Background), fmt.Sprintf("%s=%s", lb.LabelCluster, cluster))
}

// Candidates implements lb.Backend, in two requests, or one without a name.
func (l *LoadBalancers) Candidates(ctx context.Context, owner lb.Owner, name string) ([]lb.State, error) {
	var found []lb.State
	if name != "" { // the API ignores an empty name
		var err error
		if found, err = l.find(ctx, hcloud.LoadBalancerListOpts{Name: name}); err != nil {
			return nil, err
		}
	}
	assigned, err := l.list(ctx, fmt.Sprintf("%s=%s", lb.LabelPeer, owner.UID))
	if err != nil {
		return nil, err
	}
	for _, s := range assigned {
		if !slices.ContainsFunc(found, func(known lb.State) bool { return known.ID == s.ID }) {
			found = append(found, s)
		}
	}
	return found, nil
}

// All returns all load balancers of the project, of any owner, sorted by ID.
func (l *LoadBalancers) All(ctx context.Context) ([]lb.State, error) {
	return l.find(ctx, hcloud.LoadBalancerListOpts{})
}

func (l *LoadBalancers) list(ctx context.Context, selector string) ([]lb.State, error) {
	return l.find(ctx, hcloud.LoadBalancerListOpts{ListOpts: hcloud.ListOpts{LabelSelector: selector}})
}

func (l *LoadBalancers) find(ctx context.Context, opts hcloud.LoadBalancerListOpts) ([]lb.State, error) {
	what := "load balancers"
	if opts.Name != "" {
		what = fmt.Sprintf("load balancers named %q", opts.Name)
	}
	if opts.LabelSelector != "" {
		what += " with labels " + opts.LabelSelector
	}
	opts.Sort = byID()
	return list(ctx, l.client, what, func(s lb.State) int64 { return s.ID },
		func(ctx context.Context, page hcloud.ListOpts) ([]lb.State, *hcloud.Response, error) {
			page.LabelSelector = opts.LabelSelector
			opts.ListOpts = page
			return l.page(ctx, opts)
		})
}

// Apply implements lb.Backend.
func (l *LoadBalancers) Apply(ctx context.Context, have lb.State, op lb.Op) error {
	if _, last := op.(lb.Delete); last {
		ctx = requests.WithPriority(ctx, requests.Normal) // no traffic waits for a deletion
	}
	ctx = requests.WithPriority(ctx, requests.Urgent)
	switch op := op.(type) {
	case lb.Create:
		return l.create(ctx, op.Spec)
	case lb.CreateCertificate:
		return l.createCertificate(ctx, op)
	case lb.RetryCertificate:
		return l.retryCertificate(ctx, op)
	case lb.DeleteCertificate:
		return l.deleteCertificate(ctx, op)
	}
	do := func(ctx context.Context) error {
		err := l.send(ctx, have, op)
		if alreadyDone(op, err) {
			return l.confirm(ctx, have, op)
		}
		return l.refusal(op, have.Name, err)
	}
	return l.exclusive(ctx, locks(op, have), do)
}

// mostRefused limits the consecutive changes of targets that are refused temporarily, each after
// retries: another client's change or a spent budget would refuse the remaining ones too.
const mostRefused = 2

// ApplyTargets implements lb.Backend, in one request per op and one per 25 of their actions.
func (l *LoadBalancers) ApplyTargets(ctx context.Context, have lb.State, ops []lb.Op) []error {
	ctx = requests.WithPriority(ctx, requests.Urgent)
	errs := make([]error, len(ops))
	run := series{waiter: l.client.actions}
	sent := make(map[int]int, len(ops)) // indices in the series by index in ops
	refused := 0
	for i, op := range ops {
		if refused == mostRefused {
			errs[i] = errs[i-1]
			continue
		}
		at, err := run.send(ctx, func(ctx context.Context) (*hcloud.Action, error) { return l.request(ctx, have, op) })
		if refused++; !refusedForNow(err) {
			refused = 0
		}
		switch {
		case err == nil:
			sent[i] = at
		case alreadyDone(op, err):
			errs[i] = l.confirm(ctx, have, op)
		default:
			errs[i] = l.refusal(op, have.Name, err)
		}
	}
	failed := run.wait(ctx)
	for i, at := range sent {
		if failed[at] != nil {
			errs[i] = l.refusal(ops[i], have.Name, failed[at])
		}
	}
	return errs
}

// exclusive serializes do with other changes of the network; network 0 means that there is none.
func (l *LoadBalancers) exclusive(ctx context.Context, network int64, do func(context.Context) error) error {
	if network == 0 {
		return do(ctx)
	}
	return l.client.writerOf(network).run(ctx, do)
}

// locks returns the network that op attaches to or detaches from, or 0.
func locks(op lb.Op, have lb.State) int64 {
	switch op := op.(type) {
	case lb.AttachNetwork:
		return op.Network
	case lb.DetachNetwork:
		return op.Network
	case lb.Delete:
		return have.Network
	}
	return 0
}

// create detects an earlier creation with a lost response: names are unique in a project, so the
// name is taken, and a load balancer has the owner's labels.
func (l *LoadBalancers) create(ctx context.Context, spec lb.Spec) error {
	if err := unresolved(spec); err != nil {
		return err
	}
	do := func(ctx context.Context) error {
		err := l.client.change(ctx, func(ctx context.Context) (*hcloud.Action, error) {
			result, _, err := l.client.api.LoadBalancer.Create(ctx, createOpts(spec))
			return result.Action, err
		})
		if !hcloud.IsError(err, hcloud.ErrorCodeUniquenessError) {
			return err
		}
		if mine, lookErr := l.Observe(ctx, spec.Owner); lookErr != nil || mine.Exists() {
			return lookErr
		}
		return err
	}
	err := l.exclusive(ctx, spec.Network, do)
	return l.refusal(lb.Create{Spec: spec}, spec.Name, err)
}

func (l *LoadBalancers) send(ctx context.Context, have lb.State, op lb.Op) error {
	return l.client.change(ctx, func(ctx context.Context) (*hcloud.Action, error) { return l.request(ctx, have, op) })
}

func (l *LoadBalancers) request(ctx context.Context, have lb.State, op lb.Op) (action *hcloud.Action, err error) {
	api, ref := &l.client.api.LoadBalancer, &hcloud.LoadBalancer{ID: have.ID}
	switch op := op.(type) {
	case lb.SetLabels:
		_, _, err = api.Update(ctx, ref, hcloud.LoadBalancerUpdateOpts{Labels: op.Labels})
	case lb.Rename:
		_, _, err = api.Update(ctx, ref, hcloud.LoadBalancerUpdateOpts{Name: op.Name})
	case lb.ChangeType:
		action, _, err = api.ChangeType(ctx, ref, hcloud.LoadBalancerChangeTypeOpts{LoadBalancerType: &hcloud.LoadBalancerType{Name: op.Type}})
	case lb.ChangeAlgorithm:
		action, _, err = api.ChangeAlgorithm(ctx, ref, hcloud.LoadBalancerChangeAlgorithmOpts{Type: hcloud.LoadBalancerAlgorithmType(op.Algorithm)})
	case lb.SetPublicInterface:
		if op.Enabled {
			action, _, err = api.EnablePublicInterface(ctx, ref)
		} else {
			action, _, err = api.DisablePublicInterface(ctx, ref)
		}
	case lb.AttachNetwork:
		action, _, err = api.AttachToNetwork(ctx, ref, attachOpts(op))
	case lb.DetachNetwork:
		action, _, err = api.DetachFromNetwork(ctx, ref, hcloud.LoadBalancerDetachFromNetworkOpts{Network: &hcloud.Network{ID: op.Network}})
	case lb.AddListener:
		action, _, err = api.AddService(ctx, ref, addServiceOpts(op.Listener))
	case lb.UpdateListener:
		action, _, err = api.UpdateService(ctx, ref, op.Listener.Port, updateServiceOpts(op.Listener))
	case lb.DeleteListener:
		action, _, err = api.DeleteService(ctx, ref, op.Port)
	case lb.AddTarget:
		action, err = l.addTarget(ctx, ref, op.Target)
	case lb.RemoveTarget:
		action, err = l.removeTarget(ctx, ref, op.Target)
	case lb.SetReverseDNS:
		action, _, err = api.ChangeDNSPtr(ctx, ref, op.IP.String(), pointerName(op.Name))
	case lb.Delete:
		var result hcloud.LoadBalancerDeleteResult
		result, _, err = api.DeleteWithResult(ctx, ref)
		action = result.Action
	default:
		err = fmt.Errorf("no request for %s", op)
	}
	return action, err
}

func (l *LoadBalancers) addTarget(ctx context.Context, ref *hcloud.LoadBalancer, t lb.Target) (action *hcloud.Action, err error) {
	if t.Pod() {
		return l.changePod(ctx, ref.ID, "add_target", t)
	}
	if t.Address.IsValid() {
		action, _, err = l.client.api.LoadBalancer.AddIPTarget(ctx, ref, hcloud.LoadBalancerAddIPTargetOpts{IP: t.Address.AsSlice()})
		return action, err
	}
	action, _, err = l.client.api.LoadBalancer.AddServerTarget(ctx, ref, hcloud.LoadBalancerAddServerTargetOpts{
		Server: &hcloud.Server{ID: t.Server}, UsePrivateIP: hcloud.Ptr(t.Private),
	})
	return action, err
}

func (l *LoadBalancers) removeTarget(ctx context.Context, ref *hcloud.LoadBalancer, t lb.Target) (action *hcloud.Action, err error) {
	if t.Pod() {
		return l.changePod(ctx, ref.ID, "remove_target", t)
	}
	if t.Address.IsValid() {
		action, _, err = l.client.api.LoadBalancer.RemoveIPTarget(ctx, ref, t.Address.AsSlice())
		return action, err
	}
	action, _, err = l.client.api.LoadBalancer.RemoveServerTarget(ctx, ref, &hcloud.Server{ID: t.Server})
	return action, err
}
