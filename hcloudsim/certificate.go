package hcloudsim

import (
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const kindCertificate = "certificate"

const (
	certificateUploaded = "uploaded"
	certificateManaged  = "managed"

	issuanceFailed = "failed"
)

// certificate is either uploaded with content, or managed, with content that an action obtains. It
// is as the API shows it, without the fields that its base has.
type certificate struct {
	base
	certificateBody
	// key is in PEM format; empty after a snapshot was restored, since the API never shows keys.
	key string
}

// certificateBody is the schema's type with fields that are null until the certificate is issued.
type certificateBody struct {
	schema.Certificate
	PEM            *string            `json:"certificate"`
	NotValidBefore *time.Time         `json:"not_valid_before"`
	NotValidAfter  *time.Time         `json:"not_valid_after"`
	Fingerprint    *string            `json:"fingerprint"`
	Status         *certificateStatus `json:"status"` // null for an uploaded one
}

type certificateStatus struct {
	Issuance string              `json:"issuance"`
	Renewal  string              `json:"renewal"`
	Error    *schema.ActionError `json:"error"`
}

func (p *project) renderCertificate(k *certificate) certificateBody {
	out := k.certificateBody
	out.ID, out.Name, out.Labels, out.Created = k.id, k.name, cloneLabels(k.labels), k.created
	out.UsedBy = rendered(p.usersOf(k), func(lb int64) schema.CertificateUsedByRef {
		return schema.CertificateUsedByRef{ID: lb, Type: kindLoadBalancer}
	})
	return out
}

// usersOf returns the load balancers with a certificate.
func (p *project) usersOf(k *certificate) []int64 {
	return ids(&p.loadBalancers, func(lb *loadBalancer) bool { return lb.certificates(nil)[k.id] })
}

func certificateKind() kind[*certificate] {
	return kind[*certificate]{
		name: kindCertificate, plural: "certificates",
		rows: func(p *project) *table[*certificate] { return &p.certificates },
		body: func(p *project, k *certificate) any { return p.renderCertificate(k) },
		filters: map[string]filter[*certificate]{"type": {
			func(k *certificate) string { return k.Type },
			[]string{certificateUploaded, certificateManaged},
		}},
		mayDelete: func(p *project, k *certificate) error {
			if users := p.usersOf(k); len(users) > 0 {
				return errRefused("resource_in_use",
					"certificate is still used by load balancer %d", users[0])
			}
			return nil
		},
	}
}

func certificateOperations() []operation {
	k := certificateKind()
	return k.operations(create(k, (*call).createCertificate), on(k, "retry", (*call).retryCertificate))
}

// createCertificate issues a managed certificate by an action; an uploaded one needs no action.
func (c *call) createCertificate(
	req schema.CertificateCreateRequest,
) (*certificate, map[string]any, error) {
	b, err := certificateKind().new(c.project, req.Name, req.Labels)
	if err != nil {
		return nil, nil, err
	}
	k := &certificate{}
	more := map[string]any{"action": nil}
	switch k.Type = req.Type; req.Type {
	case "", certificateUploaded:
		k.Type = certificateUploaded
		if err := k.upload(req.Certificate, req.PrivateKey); err != nil {
			return nil, nil, err
		}
		k.base = c.newBase(b)
	case certificateManaged:
		if len(req.DomainNames) == 0 {
			return nil, nil, errInvalid("domain_names", "is required for type managed")
		}
		for _, domain := range req.DomainNames {
			if len(domain) > 253 || !domainName.MatchString(domain) {
				return nil, nil, errInvalid("domain_names", "'%s' is no domain name", domain)
			}
		}
		k.base, k.DomainNames = c.newBase(b), req.DomainNames
		issuance, err := c.issuance(k, "create_certificate")
		if err != nil {
			return nil, nil, err
		}
		more["action"] = c.renderAction(c.begin(issuance))
	default:
		return nil, nil, errInvalid("type", "must be one of uploaded, managed")
	}
	c.certificates.add(k)
	return k, more, nil
}

// issuance returns the action that sets a certificate's content or failure.
func (c *call) issuance(k *certificate, command string) (change, error) {
	chain, key, err := issue(k.DomainNames, c.now, c.rand)
	if err != nil {
		return change{}, errInvalid("domain_names", "can't be put into a certificate")
	}
	k.Status = &certificateStatus{"pending", "unavailable", nil}
	failed := &certificateStatus{issuanceFailed, "unavailable", c.actions.next.fails}
	return change{
		command: command,
		about:   []ref{{kindCertificate, k.id}},
		finish: func() {
			_ = k.upload(chain, key) // issue returns valid content
			k.Status = &certificateStatus{"completed", "scheduled", nil}
		},
		undo: func() { k.Status = failed },
	}, nil
}

func (c *call) retryCertificate(k *certificate, _ struct{}) (change, error) {
	if k.Status == nil || k.Status.Issuance != issuanceFailed {
		return change{}, errRefused("unsupported_error",
			"only a managed certificate whose issuance failed can be retried")
	}
	return c.issuance(k, "issue_certificate")
}

// certificates returns the IDs that the services refer to, except those of the service without.
func (lb *loadBalancer) certificates(without *service) map[int64]bool {
	ids := map[int64]bool{}
	for _, s := range lb.services {
		if s == without || s.HTTP == nil {
			continue
		}
		for _, id := range s.HTTP.Certificates {
			ids[id] = true
		}
	}
	return ids
}

func (p *project) checkCertificates(lb *loadBalancer, s, replaced *service) error {
	if s.HTTP == nil || len(s.HTTP.Certificates) == 0 {
		return nil
	}
	if s.Protocol != protocolHTTPS {
		return errInvalid("http.certificates", "is only available for the protocol https")
	}
	all := lb.certificates(replaced)
	for _, id := range s.HTTP.Certificates {
		if _, err := must(&p.certificates, kindCertificate, id); err != nil {
			return err
		}
		all[id] = true
	}
	if most := lb.size.MaxAssignedCertificates; len(all) > most {
		return errLimit("load_balancer_assigned_certificate_limit", most)
	}
	return nil
}
