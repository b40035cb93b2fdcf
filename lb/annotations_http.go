package lb

import "time"

// protocolAnnotations apply to all ports of a Service, except for the first, AnnotationPorts.
func protocolAnnotations() []Annotation {
	return []Annotation{
		// portOptions reads AnnotationPorts, with the Service's ports.
		{
			Name: AnnotationPorts, Type: "JSON", Range: "an object of ports, at most 32 KiB, see [options of a port](#options-of-a-port)",
			Default: "none", Effect: "Options of single ports. Options that it does not set for a port come from the other annotations.",
			set: func(*settings, string) error { return nil },
		},
		choice(annotationProtocol, "tcp",
			"Protocol of all ports. https ends TLS at the load balancer and needs a certificate; "+
				"the nodes are reached with http.",
			func(s *settings) *string { return &s.listener.Protocol }, nil,
			ProtocolTCP, ProtocolHTTP, ProtocolHTTPS).atPort("protocol"),
		boolean(HetznerPrefix+"uses-proxyprotocol",
			"Sends the PROXY protocol's header to the nodes, so that pods learn the client's "+
				"address.",
			func(s *settings) *bool { return &s.listener.ProxyProtocol },
			nil).atPort("proxyProtocol"),
		boolean(HetznerPrefix+"http-sticky-sessions", "Keeps a client on one node by a cookie.",
			func(s *settings) *bool { return &s.listener.HTTP.Sticky },
			noHTTP).atPort("stickySessions"),
		text(HetznerPrefix+"http-cookie-name", "a cookie's name, 1 to 100 characters", defaultCookie,
			"Name of the cookie of sticky sessions.",
			func(s *settings) *string { return &s.listener.HTTP.CookieName },
			validCookie, noHTTP).atPort("cookieName"),
		duration(HetznerPrefix+"http-cookie-lifetime", "30s to 24h, whole seconds", defaultCookieLifetime.String(),
			"Lifetime of the cookie of sticky sessions.",
			func(s *settings) *time.Duration { return &s.listener.HTTP.CookieLifetime },
			minCookieLifetime, maxCookieLifetime, noHTTP).atPort("cookieLifetime"),
		duration(HetznerPrefix+"http-timeout-idle", "30s to 5m, whole seconds", defaultIdleTimeout.String(),
			"Time after which an idle connection is closed, to clients and to nodes.",
			func(s *settings) *time.Duration { return &s.listener.HTTP.IdleTimeout },
			minIdleTimeout, maxIdleTimeout, noHTTP).atPort("idleTimeout"),
		boolean(annotationRedirect,
			"Responds to HTTP on port 80 with a redirect to the one port with https. The Service has "+
				"no port 80 of its own then.",
			func(s *settings) *bool { return &s.listener.HTTP.Redirect },
			noHTTPS).atPort("redirectHTTP"),
	}
}

func certificateAnnotations() []Annotation {
	return []Annotation{
		choice(annotationCertType, "uploaded",
			"Whether https uses the certificates of http-certificates, or one that the cloud "+
				"obtains for http-managed-certificate-domains and renews.",
			func(s *settings) *string { return &s.certificateType },
			noHTTPS, "uploaded", certificateManaged),
		row(annotationCertificates, "list",
			"IDs or names of certificates between commas; a number is an ID", "none",
			"Certificates of https. They are never changed or removed.",
			func(s *settings) *[]string { return &s.Certificates },
			list(50, validName), noUploaded).atPort(pathCertificates),
		text(HetznerPrefix+"http-managed-certificate-name", "1 to 128 characters, no space at either end", managedPrefix+"<UID of the Service>",
			"Name of the managed certificate when it is created. While a certificate for other "+
				"domains has the name, a suffix is added.",
			func(s *settings) *string { return &s.managedCert.Name }, validName, noManaged),
		row(annotationDomains, "list",
			"1 to 100 domain names between commas, *. in front stands for any subdomain", "none",
			"Domains of the managed certificate, in a zone of Hetzner DNS. Other domains get a "+
				"new certificate; the old one is removed when the new one is in use.",
			func(s *settings) *[]string { return &s.managedCert.Domains },
			list(100, validDomain), noManaged),
		boolean(HetznerPrefix+"http-managed-certificate-acme-staging",
			"Obtains the managed certificate from the certificate authority's test environment, "+
				"which browsers do not trust.",
			func(s *settings) *bool { return &s.managedCert.Staging }, noManaged),
	}
}

func noHTTP(s settings) (why, remedy string) {
	if s.listener.Protocol == ProtocolTCP {
		return "only http and https have it", "set " + annotationProtocol
	}
	return "", ""
}

func noHTTPS(s settings) (why, remedy string) {
	if s.listener.Protocol != ProtocolHTTPS {
		return "only https has it", "set " + annotationProtocol + " to https"
	}
	return "", ""
}

const certificateManaged = "managed"

func (s settings) managed() bool { return s.certificateType == certificateManaged }

func noUploaded(s settings) (why, remedy string) {
	if s.managed() && !s.ownCertificates {
		return "the managed certificate is used", "set " + annotationCertType + " to uploaded"
	}
	return noHTTPS(s)
}

func noManaged(s settings) (why, remedy string) {
	if !s.managed() {
		return "only a managed certificate has it", "set " + annotationCertType + " to managed"
	}
	return noHTTPS(s)
}
