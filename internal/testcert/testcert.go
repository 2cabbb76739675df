// Package testcert has a certificate for the TLS servers of tests. Its key is of ECDSA, with which a
// handshake takes a tenth of the time of the RSA key in net/http/httptest.
package testcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"sync"
	"time"
)

// ServerConfig returns a configuration with the certificate, which is for 127.0.0.1 and signed by
// itself. Clients must not verify it.
func ServerConfig() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{certificate()}} }

// certificate is created once per process.
var certificate = sync.OnceValue(func() tls.Certificate { //nolint:gochecknoglobals // a constant that takes time to compute
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(24 * time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})
