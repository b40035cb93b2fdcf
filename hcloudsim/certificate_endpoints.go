package hcloudsim

import (
	"net/http"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func certificateOperations() []operation {
	k := kind[*certificate]{
		name: kindCertificate, plural: "certificates",
		rows: func(p *project) *table[*certificate] { return &p.certificates },
		body: func(p *project, k *certificate) any { return p.certificateBody(k) },
		filters: map[string]filter[*certificate]{"type": {
			func(k *certificate) string { return k.kind },
			[]string{certificateUploaded, certificateManaged},
		}},
		mayDelete: func(p *project, k *certificate) error {
			if users := p.usersOf(k); len(users) > 0 {
				return errRefused("resource_in_use",
					"certificate is still used by load balancer %d", users[0].ID)
			}
			return nil
		},
	}
	return k.operations((*call).createCertificate, on(k, "retry", (*call).retryCertificate))
}

// createCertificate issues a managed certificate by an action; an uploaded one needs no action.
func (c *call) createCertificate() (reply, error) {
	req, err := decode[schema.CertificateCreateRequest](c)
	if err != nil {
		return reply{}, err
	}
	k, err := c.newCertificate(req)
	if err != nil {
		return reply{}, err
	}
	var rendered *schema.Action
	if k.kind == certificateManaged {
		issuance, err := c.issuance(k, "create_certificate")
		if err != nil {
			return reply{}, err
		}
		shown := c.renderAction(c.begin(issuance))
		rendered = &shown
	}
	c.certificates.add(k)
	return reply{status: http.StatusCreated, body: map[string]any{
		kindCertificate: c.certificateBody(k), "action": rendered,
	}}, nil
}

// newCertificate validates a request. The certificate has an ID, but is not in the project yet.
func (c *call) newCertificate(req schema.CertificateCreateRequest) (*certificate, error) {
	if exceeds(len(c.certificates.rows), c.opts.CertificateLimit) {
		return nil, errLimit("certificate_limit", c.opts.CertificateLimit)
	}
	b, err := newNamed(&c.certificates, checkName, req.Name, req.Labels)
	if err != nil {
		return nil, err
	}
	k := &certificate{kind: req.Type}
	switch req.Type {
	case "", certificateUploaded:
		k.kind = certificateUploaded
		if k.content, k.domains, err = readChain(req.Certificate, req.PrivateKey); err != nil {
			return nil, err
		}
	case certificateManaged:
		if len(req.DomainNames) == 0 {
			return nil, errInvalid("domain_names", "is required for type managed")
		}
		for _, domain := range req.DomainNames {
			if len(domain) > 253 || !domainName.MatchString(domain) {
				return nil, errInvalid("domain_names", "'%s' is no domain name", domain)
			}
		}
		k.domains = req.DomainNames
	default:
		return nil, errInvalid("type", "must be one of uploaded, managed")
	}
	k.base = c.newBase(b.name, b.labels)
	return k, nil
}

// issuance returns the action that sets a certificate's content or failure.
func (c *call) issuance(k *certificate, command string) (change, error) {
	issued, err := issue(k.domains, c.now, c.rand)
	if err != nil {
		return change{}, errInvalid("domain_names", "can't be put into a certificate")
	}
	k.issuance, k.failure = issuancePending, nil
	failure := c.actions.next.fails // begin resets it
	return change{
		command: command,
		about:   []ref{k.ref()},
		finish:  func() { k.issuance, k.content = issuanceCompleted, issued },
		undo:    func() { k.issuance, k.failure = issuanceFailed, failure },
	}, nil
}

func (c *call) retryCertificate(k *certificate, _ struct{}) (change, error) {
	if k.kind != certificateManaged || k.issuance != issuanceFailed {
		return change{}, errRefused("unsupported_error",
			"only a managed certificate whose issuance failed can be retried")
	}
	return c.issuance(k, "issue_certificate")
}
