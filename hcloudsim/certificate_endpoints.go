package hcloudsim

import (
	"net/http"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func (c *call) certificate() (*certificate, error) {
	return found(c, &c.certificates, kindCertificate)
}

func (c *call) listCertificates() (reply, error) {
	chosen, err := selected(c, &c.certificates)
	if err != nil {
		return reply{}, err
	}
	kinds := c.request.URL.Query()["type"]
	for _, kind := range kinds {
		if kind != certificateUploaded && kind != certificateManaged {
			return reply{}, errInvalid("type", "must be one of uploaded, managed")
		}
	}
	chosen = slices.DeleteFunc(chosen, func(k *certificate) bool { return !asked(kinds, k.kind) })
	return list(c, "certificates", chosen, byBase[*certificate](), c.certificateBody)
}

func (c *call) getCertificate() (reply, error) {
	k, err := c.certificate()
	if err != nil {
		return reply{}, err
	}
	return ok(http.StatusOK, kindCertificate, c.certificateBody(k))
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
		action, err := c.beginIssuance(k, "create_certificate")
		if err != nil {
			return reply{}, err
		}
		shown := c.renderAction(action)
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
	if err := checkName(req.Name); err != nil {
		return nil, err
	}
	if err := c.certificates.nameFree(req.Name, 0); err != nil {
		return nil, err
	}
	labels, err := newLabels(req.Labels)
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
	k.base = c.newBase(req.Name, labels)
	return k, nil
}

// beginIssuance starts the action that sets a certificate's content or failure.
func (c *call) beginIssuance(k *certificate, command string) (*action, error) {
	issued, err := issue(k.domains, c.now, c.rand)
	if err != nil {
		return nil, errInvalid("domain_names", "can't be put into a certificate")
	}
	k.issuance, k.failure = issuancePending, nil
	failure := c.actions.next.fails // begin resets it
	return c.begin(change{
		command: command,
		about:   []ref{k.ref()},
		finish:  func() { k.issuance, k.content = issuanceCompleted, issued },
		undo:    func() { k.issuance, k.failure = issuanceFailed, failure },
	}), nil
}

func (c *call) updateCertificate() (reply, error) {
	k, err := c.certificate()
	if err != nil {
		return reply{}, err
	}
	req, err := decode[schema.CertificateUpdateRequest](c)
	if err != nil {
		return reply{}, err
	}
	if err := c.idle(k.ref()); err != nil {
		return reply{}, err
	}
	var name string
	if req.Name != nil {
		name = *req.Name
		if err := checkName(name); err != nil {
			return reply{}, err
		}
		if err := c.certificates.nameFree(name, k.id); err != nil {
			return reply{}, err
		}
	}
	if err := k.update(name, req.Labels); err != nil {
		return reply{}, err
	}
	return ok(http.StatusOK, kindCertificate, c.certificateBody(k))
}

func (c *call) deleteCertificate() (reply, error) {
	k, err := c.certificate()
	if err != nil {
		return reply{}, err
	}
	if users := c.usersOf(k); len(users) > 0 {
		return reply{}, errRefused("resource_in_use", "certificate is still used by load balancer %d", users[0].ID)
	}
	if err := c.idle(k.ref()); err != nil {
		return reply{}, err
	}
	c.certificates.remove(k.id)
	return reply{status: http.StatusNoContent}, nil
}

func (c *call) retryCertificate() (reply, error) {
	k, err := c.certificate()
	if err != nil {
		return reply{}, err
	}
	if k.kind != certificateManaged || k.issuance != issuanceFailed {
		return reply{}, errRefused("unsupported_error", "only a managed certificate whose issuance failed can be retried")
	}
	action, err := c.beginIssuance(k, "issue_certificate")
	if err != nil {
		return reply{}, err
	}
	return c.started(action)
}
