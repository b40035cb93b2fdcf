package hetzner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

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
		return lb.State{},
			fmt.Errorf("load balancers %d and %d: %w", found[0].ID, found[1].ID, lb.ErrAmbiguous)
	case len(found) == 0:
		return lb.State{}, nil
	}
	return found[0], nil
}

// Carrying implements lb.Backend, in one request. Changes of targets wait for it.
func (l *LoadBalancers) Carrying(ctx context.Context, owner lb.Owner) ([]lb.State, error) {
	return l.list(requests.WithPriority(ctx, requests.Urgent), owner.Carrier())
}

// List implements lb.Backend, in one request per 50 load balancers.
func (l *LoadBalancers) List(
	ctx context.Context, cluster string, periodic bool,
) ([]lb.State, error) {
	priority := requests.Urgent
	if periodic {
		priority = requests.Background
	}
	return l.list(requests.WithPriority(ctx, priority), fmt.Sprintf("%s=%s", lb.LabelCluster, cluster))
}

// Candidates implements lb.Backend, in two requests, or one without a name.
func (l *LoadBalancers) Candidates(
	ctx context.Context, owner lb.Owner, name string,
) ([]lb.State, error) {
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

func (l *LoadBalancers) find(
	ctx context.Context, opts hcloud.LoadBalancerListOpts,
) ([]lb.State, error) {
	what := "load balancers"
	if opts.Name != "" {
		what = fmt.Sprintf("load balancers named %q", opts.Name)
	}
	if opts.LabelSelector != "" {
		what += " with labels " + opts.LabelSelector
	}
	opts.Sort = byID()
	return list(ctx, l.client, what, func(b balancer) int64 { return b.ID },
		func(ctx context.Context, page hcloud.ListOpts) ([]balancer, *hcloud.Response, error) {
			page.LabelSelector = opts.LabelSelector
			opts.ListOpts = page
			_, response, err := l.client.api.LoadBalancer.List(ctx, opts)
			if err != nil {
				return nil, nil, err
			}
			var body struct {
				LoadBalancers []balancer `json:"load_balancers"`
			}
			// hcloud-go keeps the body readable.
			if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
				return nil, nil, fmt.Errorf("decoding load balancers: %w", err)
			}
			return body.LoadBalancers, response, nil
		}, balancer.state)
}

// deleteWithin is how long a deletion may wait for its turn, since the Service may have been
// restored in between.
const deleteWithin = 30 * time.Second

// Apply implements lb.Backend.
func (l *LoadBalancers) Apply(ctx context.Context, have lb.State, op lb.Op) error {
	var by time.Time
	if _, last := op.(lb.Delete); last {
		by = time.Now().Add(deleteWithin)
		if locks(op, have) == 0 { // no traffic waits for the deletion
			ctx = requests.WithPriority(ctx, requests.Normal)
		}
	}
	ctx = requests.WithPriority(ctx, requests.Urgent)
	if create, ok := op.(lb.Create); ok {
		return l.create(ctx, create.Spec)
	}
	do := func(ctx context.Context) error {
		err := l.client.change(ctx, by, func(ctx context.Context) (*hcloud.Action, error) {
			return l.request(ctx, have, op)
		})
		if alreadyDone(op, err) {
			return l.confirm(ctx, have, op)
		}
		if create, ok := op.(lb.CreateCertificate); ok &&
			hcloud.IsError(err, hcloud.ErrorCodeUniquenessError) {
			return l.createdBefore(ctx, create)
		}
		return refusal(op, have.Name, err)
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
	var sent []started
	var indices []int // in ops, of the sent ones
	var before *started
	refused := 0
	for i, op := range ops {
		if refused == mostRefused {
			errs[i] = errs[i-1]
			continue
		}
		request := func(ctx context.Context) (*hcloud.Action, error) { return l.request(ctx, have, op) }
		one, err := l.client.actions.sendAfter(ctx, before, request)
		if refused++; !refusedForNow(err) {
			refused = 0
		}
		switch {
		case err == nil:
			before, sent, indices = &one, append(sent, one), append(indices, i)
		case alreadyDone(op, err):
			errs[i] = l.confirm(ctx, have, op)
		default:
			errs[i] = refusal(op, have.Name, err)
		}
	}
	for at, err := range l.client.actions.waitAll(ctx, sent) {
		errs[indices[at]] = refusal(ops[indices[at]], have.Name, err)
	}
	return errs
}

// exclusive serializes do with other changes of the network; network 0 means that there is none.
func (l *LoadBalancers) exclusive(
	ctx context.Context, network int64, do func(context.Context) error,
) error {
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
		err := l.client.change(ctx, time.Time{}, func(ctx context.Context) (*hcloud.Action, error) {
			return l.post(ctx, "/load_balancers", creation(spec))
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
	return refusal(lb.Create{Spec: spec}, spec.Name, err)
}

// request sends the request of an op, and returns the action that it started, if any.
func (l *LoadBalancers) request(
	ctx context.Context, have lb.State, op lb.Op,
) (action *hcloud.Action, err error) {
	act := func(name string, body any) (*hcloud.Action, error) {
		return l.post(ctx, fmt.Sprintf("/load_balancers/%d/actions/%s", have.ID, name), body)
	}
	api, ref := &l.client.api.LoadBalancer, &hcloud.LoadBalancer{ID: have.ID}
	switch op := op.(type) {
	case lb.SetLabels:
		_, _, err = api.Update(ctx, ref, hcloud.LoadBalancerUpdateOpts{Labels: op.Labels})
		return nil, err
	case lb.Rename:
		_, _, err = api.Update(ctx, ref, hcloud.LoadBalancerUpdateOpts{Name: op.Name})
		return nil, err
	case lb.ChangeType:
		return act("change_type", fields{"load_balancer_type": op.Type})
	case lb.ChangeAlgorithm:
		return act("change_algorithm", fields{"type": op.Algorithm})
	case lb.SetPublicInterface:
		if op.Enabled {
			return act("enable_public_interface", nil)
		}
		return act("disable_public_interface", nil)
	case lb.AttachNetwork:
		body := fields{"network": op.Network}
		if op.IP.IsValid() {
			body["ip"] = op.IP
		}
		if op.Range.IsValid() {
			body["ip_range"] = op.Range
		}
		return act("attach_to_network", body)
	case lb.DetachNetwork:
		return act("detach_from_network", fields{"network": op.Network})
	case lb.AddListener:
		return act("add_service", wireService(op.Listener))
	case lb.UpdateListener:
		return act("update_service", updatedService(op.Listener))
	case lb.DeleteListener:
		return act("delete_service", fields{"listen_port": op.Port})
	case lb.AddTarget:
		return act("add_target", wireTarget(op.Target))
	case lb.RemoveTarget:
		body := wireTarget(op.Target)
		body.UsePrivateIP = nil
		return act("remove_target", body)
	case lb.SetReverseDNS:
		body := fields{"ip": op.IP, "dns_ptr": nil} // the cloud's default name
		if op.Name != "" {
			body["dns_ptr"] = op.Name
		}
		return act("change_dns_ptr", body)
	case lb.Delete:
		result, _, err := api.DeleteWithResult(ctx, ref)
		return result.Action, err
	case lb.CreateCertificate:
		want := op.Certificate
		opts := hcloud.CertificateCreateOpts{
			Name: want.Name, Type: hcloud.CertificateTypeManaged,
			DomainNames: want.Domains, Labels: want.Labels(op.Owner),
		}
		result, _, err := l.client.api.Certificate.CreateCertificate(ctx, opts)
		return nil, l.issued(ctx, result.Action, err)
	case lb.RetryCertificate:
		action, _, err := l.client.api.Certificate.RetryIssuance(ctx, &hcloud.Certificate{ID: op.ID})
		return nil, l.issued(ctx, action, err)
	case lb.DeleteCertificate:
		_, err := l.client.api.Certificate.Delete(ctx, &hcloud.Certificate{ID: op.ID})
		return nil, err
	}
	return nil, fmt.Errorf("no request for %s", op)
}

// issuedWithin limits the wait for a certificate, which may take minutes. Later reads show whether
// it was issued.
const issuedWithin = 10 * time.Second

var errIssuing = errors.New("the certificate is still being issued")

// issued waits for the action of an accepted request.
func (l *LoadBalancers) issued(ctx context.Context, action *hcloud.Action, err error) error {
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, issuedWithin, errIssuing)
	defer cancel()
	if err = l.client.actions.wait(ctx, action); errors.Is(err, errIssuing) {
		return nil
	}
	return err
}

// post sends a request and returns the action of the response.
func (l *LoadBalancers) post(ctx context.Context, path string, body any) (*hcloud.Action, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encoding a request: %w", err)
		}
		content = bytes.NewReader(text)
	}
	request, err := l.client.api.NewRequest(ctx, http.MethodPost, path, content)
	if err != nil {
		return nil, err
	}
	var response struct {
		Action schema.Action `json:"action"`
	}
	if _, err := l.client.api.Do(request, &response); err != nil {
		return nil, err
	}
	return hcloud.ActionFromSchema(response.Action), nil
}
