package hetzner

import (
	"context"
	"fmt"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/lb"
)

// Certificates implements lb.Backend, in one request per 50 certificates.
func (l *LoadBalancers) Certificates(ctx context.Context) ([]lb.Certificate, error) {
	found, err := list(ctx, l.client, "certificates", func(c *hcloud.Certificate) int64 { return c.ID },
		func(ctx context.Context, page hcloud.ListOpts) ([]*hcloud.Certificate, *hcloud.Response, error) {
			return l.client.api.Certificate.List(ctx, hcloud.CertificateListOpts{ListOpts: page, Sort: byID()})
		})
	if err != nil {
		return nil, err
	}
	all := make([]lb.Certificate, len(found))
	for i, c := range found {
		all[i] = certificate(c)
	}
	return all, nil
}

func certificate(c *hcloud.Certificate) lb.Certificate {
	out := lb.Certificate{
		ID: c.ID, Name: c.Name, Labels: c.Labels, Managed: c.Type == hcloud.CertificateTypeManaged, Domains: c.DomainNames,
	}
	if c.Status != nil {
		out.Pending = c.Status.Issuance == hcloud.CertificateStatusTypePending
		if c.Status.IsFailed() {
			out.Failed = "the cloud gives no reason"
			if c.Status.Error != nil {
				out.Failed = fmt.Sprintf("%s, %s", c.Status.Error.Message, c.Status.Error.Code)
			}
		}
	}
	for _, user := range c.UsedBy {
		if user.Type == hcloud.CertificateUsedByRefTypeLoadBalancer {
			out.Users = append(out.Users, user.ID)
		}
	}
	return out
}

// createCertificate detects an earlier creation with a lost response: names are unique in a
// project.
func (l *LoadBalancers) createCertificate(ctx context.Context, op lb.CreateCertificate) error {
	want := op.Certificate
	err := l.client.change(ctx, func(ctx context.Context) (*hcloud.Action, error) {
		result, _, err := l.client.api.Certificate.CreateCertificate(ctx, hcloud.CertificateCreateOpts{
			Name: want.Name, Type: hcloud.CertificateTypeManaged, DomainNames: want.Domains, Labels: want.Labels(op.Owner),
		})
		return result.Action, err
	})
	if hcloud.IsError(err, hcloud.ErrorCodeUniquenessError) {
		all, lookErr := l.Certificates(ctx)
		mine := func(c lb.Certificate) bool { return c.Name == want.Name && op.Owner.Owns(c.Labels) }
		if lookErr != nil || slices.ContainsFunc(all, mine) {
			return lookErr
		}
		return fmt.Errorf("certificate %q %w: choose another name for the managed one", want.Name, lb.ErrNotOwned)
	}
	return l.refusal(op, want.Name, err)
}

// retryCertificate waits for the action. The next read shows whether the authority refused again.
func (l *LoadBalancers) retryCertificate(ctx context.Context, op lb.RetryCertificate) error {
	err := l.client.change(ctx, func(ctx context.Context) (*hcloud.Action, error) {
		action, _, err := l.client.api.Certificate.RetryIssuance(ctx, &hcloud.Certificate{ID: op.ID})
		return action, err
	})
	return l.refusal(op, op.Name, err)
}

// deleteCertificate doesn't wait: the API deletes certificates without an action.
func (l *LoadBalancers) deleteCertificate(ctx context.Context, op lb.DeleteCertificate) error {
	err := l.client.change(ctx, func(ctx context.Context) (*hcloud.Action, error) {
		_, err := l.client.api.Certificate.Delete(ctx, &hcloud.Certificate{ID: op.ID})
		return nil, err
	})
	if alreadyDone(op, err) {
		return l.confirm(ctx, lb.State{}, op)
	}
	return l.refusal(op, op.Name, err)
}
