package hetzner

import (
	"context"
	"fmt"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/requests"
	"github.com/underlay-ccm/underlay/lb"
)

// Certificates implements lb.Backend, in one request per 50 certificates.
func (l *LoadBalancers) Certificates(ctx context.Context) ([]lb.Certificate, error) {
	ctx = requests.WithPriority(ctx, requests.Urgent) // changes of targets wait for it
	return list(ctx, l.client, "certificates", func(c *hcloud.Certificate) int64 { return c.ID },
		func(ctx context.Context, page hcloud.ListOpts) ([]*hcloud.Certificate, *hcloud.Response, error) {
			opts := hcloud.CertificateListOpts{ListOpts: page, Sort: byID()}
			return l.client.api.Certificate.List(ctx, opts)
		}, certificate)
}

func certificate(c *hcloud.Certificate) lb.Certificate {
	out := lb.Certificate{
		ID: c.ID, Name: c.Name, Labels: c.Labels, Managed: c.Type == hcloud.CertificateTypeManaged,
		Domains: c.DomainNames,
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

// createdBefore detects an earlier creation with a lost response, whose name is taken: names are
// unique in a project.
func (l *LoadBalancers) createdBefore(ctx context.Context, op lb.CreateCertificate) error {
	want := op.Certificate
	all, err := l.Certificates(ctx)
	mine := func(c lb.Certificate) bool { return c.Name == want.Name && op.Owner.Owns(c.Labels) }
	if err != nil || slices.ContainsFunc(all, mine) {
		return err
	}
	return fmt.Errorf("certificate %q %w: choose another name for the managed one",
		want.Name, lb.ErrNotOwned)
}
