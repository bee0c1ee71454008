"""Stores that an earlier build wrote are read to the last bit, whatever has changed since.

Once a release has written a format, its store here is never made anew: a new format gets a
new store beside it. Each is a folder as .tar.xz in base 85.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest

from archives import unpack
from rff_stream.moments import N_PARTS, AugmentedRow, Moments, ended_readings
from rff_stream.moments.row_sample import RowSample
from rff_stream.store import MomentStore, load_model
from store_cases import bits, same_moments

HEADER = {"model": "KernelRidge", "parameters": {"alpha": 0.1, "ü": [None, True, -1, 1e300]}}
ARRAYS = {
    "map/frequencies": np.arange(4.0).reshape(2, 2) / 3,
    "map/odd": np.array([np.nan, -np.inf, -0.0, 5e-324]),
    "map/single": np.array([1 / 3], np.float32),
    "map/counts": np.array([-(2**63), 2**63 - 1]),
    "map/keys": np.array([2**64 - 1], np.uint64),
    "map/none": np.empty((0, 2)),
}
ANSWERS = {"coef": np.array([1 / 7, -2.0]), "floor": np.array(1e-12)}


def row() -> AugmentedRow:
    return AugmentedRow(
        map_fingerprint="f" * 64,
        prior=np.array([1.0, 0.5]),
        nesting="average",
        feature_origin=np.array([1 / 3, -2.0]),
        target_origin=np.array([0.1]),
        target_scale=np.array([4.0]),
        inputs=("lat", "lön"),
        targets=("t2m",),
        units=("degree", "", "K"),
    )


def moments(order: int, i: int) -> Moments:
    size = 10 if order == 2 else 4
    return Moments(
        row=row(),
        order=order,
        sums=np.arange(size) / 7 + i,
        n=2**40 + i,
        squared_weight=i + 1 / 3,
        log_weight=-i / 3,
        parts=np.arange(N_PARTS * 4.0).reshape(N_PARTS, 4) + i if order == 1 else None,
        sample=RowSample(
            3, np.array([i, 2**63 + i], np.uint64), np.arange(8.0).reshape(2, 4) / 9 + i
        ),
    )


def unpacked(text: str, folder: Path) -> Path:
    unpack(io.BytesIO(base64.b85decode(text)), folder)
    return folder / "M.zarr"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of format 1 that was fitted on three groups, got one batch more and lost another."""
    return unpacked(FORMAT_1, tmp_path)


def test_a_model_of_format_1_loads_as_it_was_saved(model):
    stored = load_model(model)
    assert stored.header == HEADER
    assert bits(stored.arrays) == bits(ARRAYS)
    assert stored.moments is not None
    assert same_moments(stored.moments["a"], moments(2, 0))
    assert same_moments(stored.moments[2], moments(2, 1))
    assert same_moments(stored.moments[None], moments(2, 2) + moments(2, 5))
    assert stored.moments["a"].row.fingerprint == row().fingerprint


def test_a_store_of_format_1_goes_on(model):
    store = MomentStore.open(model)
    assert store.ids() == ["fit", "é"]
    assert store.batches()[1].labels == {"day": 5}
    assert [entry.op for entry in store.history()] == ["create", "add", "add", "forget"]
    assert store.verify().unnamed == []
    assert store.append("é", moments(2, 5), {"day": 5}) is False
    assert store.append("new", moments(2, 7)) is True
    assert store.total().n == 5 * 2**40 + 0 + 1 + 2 + 5 + 7


def test_answers_and_moments_of_order_1_load(tmp_path):
    stored = load_model(unpacked(FORMAT_1_ORDER_1, tmp_path))
    assert bits(stored.answers) == bits(ANSWERS)
    assert stored.moments is not None
    assert same_moments(stored.moments[None], ended_readings({None: moments(1, 0)})[None])


# fmt: off
FORMAT_1 = (
    '{Wp48S^xk9=GL@E0stWa761SMbT8$j;kW-7H(dZGi;G4R%=s9vPtYK%$KB5XT^*8rI9e+s_Mor9<3zCY5G!NNh~f'
    'p${E!&^gcwb}^Vx|*2Dnm@$^SRM<TARQsQz=_9306)$t>>NDrE0mP*oN9;5b<jXN+5~L>TW{pYUDVqWHGHU*gO;#'
    'x$U3jrqi=(}!?&df{u-+7AK|y^}eKlSn9!C1IR*>r;D5MWEhhy>%V&q#mIpEO9`uVAE5AJisA~!MHgK&5CyQCgS2'
    'j@ZHXADA|RpUVk|LL$`<TB_MhTNE=;`X->WK*m4C6WaX0Q!=H(Y0jbyxur1`C7k-lTu0HRO-u$a%j{AmZPodZJOh'
    'O@-h$!MLxhb(xxfI4sCwkTbQN;8dv9>MrVLj)LcY<Bkt1qVOC)SrW)#m>eL;J>X-c=pU%M~(o=;f8DmxT*OvJFiY'
    'SOTA4PRV)uI4fckuAmO_Qjxrj&=^adS6!6sO*aIAzLnqnuL#AV(ki==2Yce!x3-^bo%D8lwCg3YV3M+v3YiO`tYk'
    'O9Q0U=2lZXjl_qpSk3@t9brcM3|tv`O}urGDeTOp=b$KHSV_KRt&(Iq=Ao8Bd@gJMW`cZRmO|FSk-7Z&}{vP_oKf'
    'EQ)2XK7XA&Qv69mEl@)h8r^^m|K397wOl637fYPsj(&ndQ{^S_YA33R|j+ex6PWphQ1qpBUjPzzuiCuJp`w+OTmg'
    'na?}+Y>$3evNs>r!h?*}?;GlrFHVn{r_T{xX;3PKk?rh$dlqu&*9!u`7Yar3ydxn~V^2#68vTAyN#vC(E)y{N)E='
    'Q(YhqHMzY1B=S{TkDI2JiAm;D368*D&*==TC@k$TIY<a1baAA>&T2_+w^4widcivV=>oIGMa#uuM?pLL~Cke~ko!'
    'eVcOh(+L3~b()lR7Vl*)P;s^f8tOcCM1bz%<3Vqgo@^u5U>q$}ez@m5J%l-nbE%78%XYRb6O$fllp_*Z62pu_wJ>'
    'H|3-6w4{ytB!d8V#{aCkm3k<<%&K9lORRcO#N*6%EbUShe@5cB2<IPi>h1>yeY|BJtoP6>+&kkzmS?pJE2%k#I8y'
    'uZ6v)6w~G72NF@R#hFDh%q8uFDF28hb`M4IFoU=2NM`8+Dcz_7QAhn;Z;$$)8v0w#^{92%Qn-!J@U6XHQChI`*m1'
    '=Xmjs0k{qK(7(cU=!;Y0Kwrv2Nx{-(p=M<|AfEKqgfaq)O-@=p2{Gtc>w#9s>FerAM4TR0?+s;x4%^O;J-kJ$njN'
    '@Pq&#`aEcYm4JKR)lVe(jS*Q1=hw_gVuyIa&Ert$!aDJ!N4zn;}i;3zU*K>@${m?(%NNw^a4H)e@ADzX|t&>*Oxc'
    'L|#`*zM;y~jJoWWYYIbQTYnR5^86^hQzbVcychTADM?TzAac&KrK^OEvBWUY0#$|9(YyGFnI_6fwm<k3IcI->LY('
    'w)W@&CL6?O+DeyC)~+4_fj3oXrdSQd`oR>Lg>c*tV;y4K{9#Zt(iJfsLn+pO5dRg8I_x#~YvoLkdI!Ws=&A6R@_@'
    'UFw8EMmCa9~xR{cs&W%8tkhq&Uhe}=bf>MU)Pqwkc+mEm{$fr57udu{QO>X@%v`GNFn9rT)75N%Va_tVdI`K_!uX'
    '!Gb93@%qr`D&u6ebV9`^COBTQ+A&*Nb{tazZKtBnm)#z&ue#qpgLUwP!RPd6xTW{5CXm)BQeQb|Fb(f3fZu#@1d0'
    'bNfUR$WZc3}BE<4@p<oKzzDWGFQoF<F%8=tuyqw>_@$^g=8^e)*L7CWWfEO{AQX*fpH`cSKY$lTjr|RHn*YC;@{Q'
    'L}+~bPkLReE_rhpLcO^Q&<ipJkXV0AMKgDatZyilLmV1<T*kAykm^||L!>orWD!@Pd`Q4&2bWhI6hfz9ct<r*uim'
    'VZK=N1EwwhR4Qm0=-11@|2U3rQ;xN^ASn42>*6r$Tnu;rdMHY1x&x}>kta+S&37CMQW6~eB1y$Seo6_KD0ZC!RK{'
    '!@u-%!ojjfR>anNKVeY7XEqX0lzN?x>gQ9(y&BlwZQeeX?t&m#O!8JckTw0?gZ-%!Ib2}6EPh9g^(Y6vh#La8;6F'
    ')$=4I7e`{9slrRDoKPNJ(3wxZ+O>!f`&)pT*UY4~#By<7kuK-OJL98XMpuL8sNkQpg?N0-}6xqCi;f!pMyvVu*9C'
    'nfT_<3>Z@}ilk7N0EM<TzyWjWg1`A@pu@z}mT_B4nQMGy}6XQQr`i980`4jLj4<^Wi&<tr+r67WoB!lc*$NZTM<N'
    '@>jF^3_SqziA6#whh+mc#qQMwtEQx*b2&tz*0hUiQvrkF82t#f*`X;w3W?87qMv)Z5C>A-Y%pu6XRwA*^`xTLhxV'
    '7R3{A~b(qT?zu{rB!fk>$O$cWRoq7S6rB-rva-B7P%l{ovXN_OcIRlVS<O#1$^{l~jcl;fZ9JtTJpJ&4_Fq=Gks$'
    'feap+)TopC9#U(Rg|bvn_uhJtw`jeRBa(~7(oUek!E>pD6c9SOL~Hz&KxjUHvgFmCq1_H7{XfCoW6cbEN&6TK3Vl'
    'E3PXD`647%<Ju7)(nmMuweq#F=U_EX%Et>&b`<IIM-Q*MjLrOO3j_?q5o+1yUs+~njxS9zZ;%-H_{=s;9;DIWxWU'
    'yAO6iJnL2grFqab$;T+l9I{7bsTO1NjFFEBkvj{)_cx%Hf(nMO*E#F^w(_+wP)JYRtjA(^^VsDr*P<m)*ADD#5BM'
    '%ygl{HYQ;$dIxGSbl$hn(a+QZW}9)Zj4=MpYF7lWaT!3s9#j*boz;v`)&$&9JCjBSGc09=w=p9UX1TPV|NK>F@V#'
    '099>P+MfTG;2G;!@a=AZ&z$tgS@Y?)jQpSlVYx5pp^o=O<J|FEyIdlCm`g+$;gaOeMM@y--qGa0|kid>nFWtU})m'
    'Ec^FF`b|nt6<l#PUT+2b=Pp3!h3-stTYBV)X~uXGyV<;!jrx229KD*6b`gl3*Eg86hGuy0?}FOFmO|pnd*s>AQVg'
    'VMNt7BXvrSs%<)lH0fa?cP`VgGZR_!5CutWm<N7Bw6yc7^7#_?2E*(E;&gZjTRGSdA>3$cm_uHUmsJbyBbYcBV1c'
    'nl}dryw|Pkzs98-pAGY0q8=FcEdU&8MIL9QImm@VEW^t-9Ra&TAE+u*9k}@^C(vfAQO}NdeWFHc;U;xP`?ia$2!F'
    'p>CW{nwiF-H@Ta>WY%T#0{r5J*cSqjf^vn1)Xq&1Ctt6O=V>TO?hbCLS`zbgBjr8;_KB{_ZU>-+v7OE8ioV`=blE'
    '*RDNkdwH1tZk@sa`ba-<q~di!;sA$m;n67O@zJ^q2`2t1q32vUl%gCJusk35VeMJUl7&nC36<ghP1S?6q>=CszGY'
    'pe>BsA9-^Nf#5OiN*zNkzprPrRl6t+W10MT1P9W+Rj7SH>*TMja)7^Dn~2>;OO8p6_9AQXM7VrTiGeQlimkP5MDz'
    'vsQ1T!>3js7A)0ZFd~v1pb0I-}2{Mn$^UZ2PAPG!camUPIIt5w&kFgQ~^89D>1U@qll;&`%dLIzAqsqW`krqaqOH'
    'O!g%CuMUtZlk|Cqu}y@T1NCjys?u@ohT$7bTrMF(HJ6e2J*zT>e(+<(G<7)+FQ`PAmNof5F}!TQiI1!`mX6=93#i'
    'pM|~5d`($T<Mf3)GuKonCFSRucPDbD2P%NL_xrd!$T-fA{04Ld>uE5QqTA1~lHWdd3d5V;>xa!<W>SyW#_^%XXE+'
    'i<Pf8;*Akf1X+ebc|w4)@_+{L3n7PLitwm-q~*F#1%7%ZVj?#Cf%91%)Oj`+F3)AUrx(BZ+m&~1DeEXx`wF&r7SJ'
    'm|6}&iKq5=@S5U2+str)L2Fl=FMdo%|Is}k~`Nb=f&_dI~%EzGH1f{3wA*$&ePy`yuFJhgt~3_`HAkkZF+xb#XV-'
    'EC|J>7TH}IK332Hzo30qltU1s#sXMYC%Txnm3XFi@(^59|p_oZEul_Q=8sAblFDR6x=tH|R3oQld%h2cIrr^Rgw@'
    'V8ty(ibk@PrKNU^+-H<4Io1+?-K@JZ?aYDF9Wh!@W1p85Jy`lE?Epk>KQj3TFu<L947?y}Ef@-l1oz5Pii*X=n6m'
    '_hr=kSmAJRV5}{H0H};19M!!87+G2M!rM8R)17Ti4>@R<NL(8}Kf<7o#A>)3rZ^q2#01mjT9*Erq(+7hY6%b6W;o'
    '^XDCz&Uj59!3Iw_>JLz#6`uRtUnEo@ybcJ<rf-_k9+;hjinP#ggguBb?RrJxFLB`hXQKZ9G2(M2a4*Rvav$IAJky'
    'EwGwuEBE4=1v(K=dyu-)T&n>z*?v5Xy^0BLNGuN^TN!tUyNH(^2*D#sC(p<`Dj7hJ}~jr_4zSB*Nv&9v8&m)s~-_'
    'ZR8Zsr`t@=@t|msgI$TRFCH^Ve&-m5DO|C3X%dP<lOzWmD7&z3Dn7vD5>V!KGSy&iWa6as!thHsuB&$E~DH#*911'
    '_w|%_0>fAz%L(Ej(SmX;lIo<ka#vUNGhY#hDe}GD7&UwN6(Av(PzpN&Xcqjw!2_NPQz&#4rJ}cT9XmiV&8dc<jm*'
    'i1K6gBx{(uq~+Zt(1pQYo4JDKcLGy;c#ll_IVc+qM#Z8%bC!oeS<US>$&{#`_meVZXOPU<%-(f)cs7?%oGpKN2u$'
    'ITL4WgSs*=%arMeuJ%^p&hfUS<=)53zE^Mk)UW&w0Xmol?uV|NiOwwmD%0074rMtfw0>b?R&|DR8!bYk4Q!VA&)!'
    '2wUKEgT1}-2O%g{GRgfH`WdqQK(|Iy>|5m<U%T;*>?=ix3iy^rS#C^&dayt<N$5pd;{GF0*yxY6irJ<4}i>EFOef'
    'MVJQb+z)u`a&KoFToQ9Nr8|j|SBF<VPk*RU^LGj$c)$hQ7`7!QrU7pb1>m(VdI3z_ypB>ma{$<>xV~D73qH{bwIc'
    'R5fq2->sERWc1!RWq#K;t)6F07-<Nv(%RI7{6ask31>p83v*`VbgvG8K-6(fhF{55aiA{JgV(i9Kush)U@jUu}ll'
    'cbdLUw>^P7&R*i2hkAFx;&h2OI9D8-+j66~7N8^o=BeGW6XkT9;(d19{a7_(oAv6Rs^F}>UY<6%v^Ty_+)gj&P4l'
    '&)xTp>6Nw}mYKPdsR8j9es*oF8Ee&%F|kR8!i?lfu21>5GaHNGh!qH7d!D3xN?;Bd+T(K}F+Osg5E&P$MAHdH_}V'
    '%CQ7`i6f_&L!WU3`d%`nIS5=uA6c$t!oe~zp1sAq12gJ177$GKd>8|o5n78dCg~)j)7vdPV`B!h|ooo+lOR=7Z-3'
    'UDn$&GPJMKzwGPf(mKgMwcK5N!DU?@-tk{7WOyAEKM16Sk7`u<UjaKcEO7zBV=LC0Y?pEP4Mbuv6&!^{IcOE^sR~'
    'Zeo9ZomJT4FV%&UP*qobVcjld1?#(d{wvRi}W#ou7X21vO!Sojx1O$-HGUU<KBv@I)8O(77pj#2IJuRnmHj)g*^{'
    'ti3P^`s8artYT9x4D(&*71L3k5b$BWnh3AP5st*$qRYQ3YTz<E><Fai=ZtWC)vDiV-M0Dx{eU#+BF&1oi0I@n67w'
    'Z~S*K(dSP0{d*{X5vtqvIi@X{_a_mBl;(&;RgqZL+}mp#@3zk^T;q=oF{=FOZzom9f)g-rNjx!s6M1t{A;#%dkqn'
    '9Sb7?j5KdT3DN3&}5eVaIDfP0p|?KTEyd9VugIo=u!!D6B>erq_(=cS+dxRqI3|nc;Jho@*q;yg|##wv^X^~LQU@'
    'i^f#q~98fV`>+$+QsUxz{@|Gl{{<>M8kBx@gk#;1r#{II?Jay=ML;_--TIl%VGL#AAyfsuz3fZ=i3yd(WYRf4+8#'
    'YwGTi&vI`_Y0S>~Uo!!c6vSefB0O54@_Sb+S@`2>3WS0HfDnYOjngH9gm+fYYPWReSDIcL6{im3=iSVF^dF3h0GB'
    '>Qm&sDbwxGP;rtv4^amTrV`WDVzb(uf99}dE4&+AZGE51q*@2&3$e(#kTHcG2l6CeD)x>pYL6?J{eR}GuS(jJ{cp'
    'GAsu!BQ!<-U2hnf>%iv}i^`a5|TT6k~b#L<F#!(v-7FAzXHg~ibxVl4eNXR;Jq2c#AB)jO$V;9*3h^Af3b9o$Xa*'
    '*>Y8@zUH<(D{o=GtoC`dTgyLfLC=nNH?(pe<8XESV;w}?;mx*c+02?5{ye<17X6Z+}75R3pZ&`cl8vHsM~2gl5N)'
    '>`GPluAu)@3PeL$zi!eURlEOc|*1>l9R$nLQqeU`?Hro}d|J(!XNonn{Uy0cfewqpxryz*#AO^})yx_9!!a8muw#'
    'Z!8+vdbd4LF1HBorx|H)>ykpkPYEvIqCiu|~l|u8!UiZA9ntw+mMXV%(-fubB7*KR{8Nk!yrA#iMc}WXhD_S~V_n'
    'kZ1L&CfSe*BitGrCPuuD78BrS(!Ke`LZmPgAk1{m@p5oMFM^I2r{Dg<*0bUWc|7l1sNx@Hbqb{W#mBf)9j8l*x9b'
    '_Ksj^G)Jh7N1xCfNEToaKJi0&#E*}A~3P%b-}avRwf3CoNudXy0Xf5^TGYB+)A7MyB<_J3S5raKzWc9AzRN&f@x^'
    'Sk(Ub1lZzLIX9pLn-FL$k%3?Lb9sCA#r7P?V`Vy#5u%Y;&w*aAc_{xqv3gN^y0Z=_sbwu@DKrh6Zb%&#B}Bx_Er}'
    '=-95DA`64N?rNQ16wbIok7x^Gw3qv!9zV%I<A}hB|92F13F5I>Ypz`r8tV!Z?2WvnHx;VOpZEjZE=L&Q;-~E))h3'
    'zpEx$5!NhQjPQGv9Ars@-)Kx?u~`MQbF5FE~skX!%XNJ&^hg%GEK`Xsw_1QFU|ZU|L$3%Gzn_WVXTt58#FW|3^eX'
    '?xteEvv`K=G7kLg7C{6->?XfA=TvFos4xnrgvyEXM?!J!g1vbqrn<AQlOL1_+vu}{eqHk|iiwqQG^KH7aPs_Byc?'
    'jWD`?#Dz&3v812Aynf#@>Y%ou*GPqOG&K$HGI765V=P?I&L3BDQ#cxmQ4h3uvrfCaFV{C1u{1_tlPm?wz!T9dD_F'
    'or$(V%;aaW}I+&rsKz_w9O`Cw*KG`K_3O8IW2`)8;6Vx3x$5tpm>!|1v;Lx0+1VqtMa-ak|;yFUAvf8+!$Q=;rjv'
    'y06t~)4%93@8eVQ&exWjF5bO<KRe&#odKa<hwu}SEZcn0Z@3&%g%7(IK90ZWOL@2k70AOdsDteBlDSC5x#hKeu-3'
    'bv2D7%#i*SUiQxvSOu^)dW<p7|rXu>Q88{+3>rNpicM|F<0UNTK0*vbPfwOmXLqoX(o4yr`+UDk|9x$nmi%y1L4A'
    'Xi3QOD0E<N=Lv66)<Q7jb}}M__wu9=^6m11t!qGl4qhp-CnI^J&)1-T6(DIrOWxvy#*nrgC08qw=etksq~k&uv}W'
    ';!TJ;og$bw$aUxpFhFti3lW&uU0m66U!<JD^sSAb^(RF3gc4e*A#NL6jER>(ej+b~BF%r5-pJbO;_1OPy<K)1^FB'
    'SECaAe2nvH8OR~l)YxhdG~<(#>Q9@7bho`mt0B4CYMl76t@o!H+6}Xt=!u~cN}+UAGd5HOl4eI4BSiqM?<D3{<-='
    '-=+P=|n=yfzd8C;tg5tF|f9v2v&lKmF(XCK{J3<;{a<NH)bmLeERR#Ag+BcqsmqvtX_x-slF16I9C`H`uejh1?0z'
    'lb<<Kin9OdBCQiAxm~Tbfycz&{x`C(hn8xJ9fMbR&t8?rf5|0ri%nU#6Js;8U7u+H3t^<s27fQe!MW)g^8#$E-H_'
    'dAOyYRI0$N@Xdxhvc?%dG>sn#44Fc-NL6nXxE6@dT(!Fjp{);Gu~W>@b#Sd}CYe(hBu^iJWy|zTv1BJ-@4p7?K&4'
    'Q=yJLL@^Ot1wYJd^c?#%lYRR^%)yoD&k2#<2~<7Q;Z8ik95t<=!9;tAPGkaGrMvWHyKiI5J$vv%DCjw7PZh>5W~d'
    'btQ1t0u%b?fKZvjGgW@C*AbJ;Cf#WMnFlG=SZPEA)b`8{Mi4$jd*a?yh_KHVvR%5zTzS-)drfbPN5n37*%l%b^Pb'
    'nw-v#QN9{JOCM=0$fj*D2*KTswQkeU~xK;`sU4~`;=YRkJ129<jZjH3Z00Gl5fba$Yw_q9gvBYQl0ssI200dcD'
)

FORMAT_1_ORDER_1 = (
    '{Wp48S^xk9=GL@E0stWa761SMbT8$j;P3wp@m&BWi;G4R%=s9vPtYK%$KB5XT^*8rI9e+s_Mor9<3zCY5G!NNh~f'
    'p${E!&^gcwb}^Vx|*2Dnm@$^SRM<TARQrg-SNZ&;`CT=3+pv8@v;l6`%D2t%obY8EFmN8F0m)urrc-TSYJJkqD$A'
    'Lmz<oDSR;(<0P*Cz2%6%C2kz$YuNEy7jMBMjfdgUbX1Tkka=8s8-eVgXW*S<^R$%6{8c%d~$|)3kz_=50!rMz(&0'
    'Px4~8^$u7BCNFnfmeRrC%Ca~7uS5VD7JjXkU--95_9IKcuFv^4FoEh3Qp$XAas%v7M@&BQn_KSZ_Zz_3EkLRMfqp'
    '|5Vf=OZH>j0rjH*QvdtTD)d@(Ak{QtwoL8m;~j>_3y-SU_nl?6M>?9;!AU7Px5qgcyKlytRwG<wMHI84w&It8N|f'
    'C&<<PGE1jM8T&o+JQOl{j59%nQk@3c1>OKG6V^$$!EUaqXjV4GcEFzqbX|DjN_}NnDLuM{Cj$bY8q3nfNoPP$BMm'
    'RkFu<UmO9A^2Akjx?fw>C&i@e#Oxi{ZJX(EQatKyj}t_a=hYe_4a*SFQ7jP^W7$3!&fNj0v{0z~nu@x8vr-{!G|5'
    'rsJ&3<wP|F1TRDj;gVK;XLiVzg9dUZ34qWs;7U9;-l5Ws$@=HUBd*dD1KCf{^Z{Xn@-rmSNPQI&E&&3DW)*Iea*w'
    'HLl;j*eLt?jGE)-;DvQ<$kivi#ZeQCy=6_Ko0;)ALhNmU%8fS34xETA!4n<DS9cP0@?Q~*Z`9yR;55nCj!W`Z6VQ'
    '1_5z9gjN$u5~ziuPBCh>H}7jh12%v1Q%&r=0@3^7{V2)8h0GQ$x&Q|Dtv53^|~LzX{@$!uTr!ZY>mQU`7kPQpURE'
    'e6g>u8A_(et+lzQ6&I9#80NkduYmqP`&v&?_{0u$GRS{QG?U?jdI}H~caOb%+MBVhqE2z%8`AZ`g(5A91b^K7mMg'
    'nFEP@!Tl3wqg&{VXdX~S5(60H4kn*K0)D;VN;^eLzKKE_>BRkjnUM~iPcV_$TiCd(igz5Jh6%~8DV^}2bLEo|E#{'
    '~M_xG5<6n{vO=^Bm^qgXBTZR{z6)T!>KxbxJ3UD{8vyqay4eYzNvtR*jI3(mrSS2x3Any=DhR9=0jSp<Ip}4AOHo'
    'lF7UDrw@P`dzWWJxPy?5<!NFV#lYP~u?rI!;I#U5cv(i3+%_g^rw3ToP7h~+EtjX05ht2RCmjIT<e<B6w$g#Za8}'
    'T%Cw|ID{c{p`5>^LZtlbMj7FO2mFP)6pxM5bQt!W<W~6XRSF;;JW^`S$gKBKRS+aWy_?(a8tO!c8Q0X0DIpM}HC7'
    'sMl!`%$$U#wRONr>j&_(6P$tdPl1~4s)oUfAhTCy4R+$e*eqOQl8z_O6Ft#2xe2%R-^(+q(n(~P+$xW_J+}3wwK!'
    'rTXIItn=tz9o4tJSt<p;JLTUzz(0!qL*u#DXlf>&kY8|TT6xM+g}L;t4znHWy-8xWm??PaYMEeihuqC<&O^9JD5F'
    'rQcO^aeXM`IKA^0JdOc^j7Bs=G$yZW<)j3;oz<~F6PzGj{&Kn++-H0V8o>3Z?_u|yn7+Qo7t34hW>#PC79RE2NL-'
    'eFS7}}j;eFo>r4R~)8JaKb@Fg5b3tfZYEngx`@4;z{AK5?gghGDcGkyCmXiD>5AH`_!Ctl#dtDSKHIDD2^r%{RlD'
    'U$lj5$y*RIX!-B`0}<3kM&0g|&DMh3)G<d=3>pR0yb#Z25rf*!6xPrHb%(7N^#|43!aH3pWZ*>(KlL!dk)9H-Fm2'
    ';;*+>!#K>;HKjRP?8cFe=2kc>55pY-Vofe!{U=|2w{VT@b^D|4?BLMcB-}wDm9PF*J;ZNl<tdISxabAbjxPWATZj'
    'gOP7O)&Vg7g&lvO(O1+EN}L2^(Yhz69qM^=)#vaq9V@^del-s5|TO#%MXwY$l-7O7FKh1?<smRA<a)W%bO9YIr7b'
    'gje`X=-Q#`t(2RQ7dxu=iQ#Kzz-63XUA_B3#rAiB(t6{`18(?$-{7_uDYp@L0Ri#*duMzW)C-^y)=puxme9Yc1M8'
    'o%j@xW<w_)s!pC3BCO*#l`pYjj5Src=jeE@8NN+(f8;y~qpVUzjuwMv)n)Nn7u3t13I`AS9JthWJBQTI{-Z(jKf+'
    'zF;P9q}Pc?lE1!O`_A|4XMvDQ@qba*e7&`36WOGa_x6&#ANLLMxw+%Lr^n;cyaaQ~zo>bI*XKgB`xX|G`#Nc*Akj'
    'eN7madK&vL9J-4VDZ{v|yZd5ta37<-s#fxD0kw|UE|`dg4j>UeZ)B>0`<Rd=vJ4!l3TyqfM=QQzX6S@*zye>`@>d'
    '&c0jaBoJIP;0DZnarsRQa%mI6aPL|X*8*xBTGo@<IQh5Dw&1|P++$vDcBM&tC{xu_NE_+QJm-VVHYqh>6|nKVCo#'
    'Q9l3e}u2<wt$@Y6E$ImFg69<k>YD&VM8KwR@9fKo}^WPfi1^Vx`&MXf(e1fag%6%eVfm~1$ZVmUT<y^fF5o7vodP'
    '9BOi}N3T_xAIlobd*y5tNZuJ6gPt5TOH}O7N(aX)1ARU1vEYUM%NMtNUbL9m`CC^IG_THi#o04W|k_40g4bJz<@6'
    'qt>LXRQScMy8@Rw!Mt{F}&fQ;V?z-*EkBq~qCylpom6wdpIehlJ1|RO3Hi`07cyR_i4UTFtG}Ub+|1$?ub=F~=pZ'
    'bW|-1C|y|0jYR5n^Q&Y~XAA=Pqb|-uqhHU<YH-_&tZN5CM%o3Iw5<6h18U~8KsQ;TZn)pGT^erRAMAxx{m}?3`hH'
    '=JJS3?WI*Nk2>SF|Wy8DXAUEvTMS&`SLmg`4UZ0dAlo-1At{n4__G{5y*gprHV=OpVy!r##f%Cgs7@3sl}1JTGc('
    'DD8YuehE03@cryqO@g+i5vu1#|v0y59H&EDYJS5Xw{0nx**O0+)$r1Y?|u8mORAJgTiy|tl6hHalxB6`&-5NE)lM'
    '3)_^yIz0TQ@fiZJGD}EtvTX&duw$TWJ6<AJ15z#FV&NW=gsRM7}TE1?6iChv79pv;K)u#zZJa+gG?zYQ+ZVBT>Wn'
    'Vu!7<2b$-7jwh({#XXVb<>yHZvym0bWeRjQX<m=)F0-o7m!qH5_pI)s?Lwn?I3A)R0ox>agV}1f=w|Boevkx}}tX'
    'Q*L^(-g61mIrG7p?$5%7|56M_=JOc}PBn67@{u<AW_zpWIT!_$7}7{BC|q9zs0p=RDRVv8D%$Ppz&`gcynr`GUig'
    '!MjdFjSnxDNLB4Pi9=it}lCPN%<I(#*;%kOSm_=lDyYwEV%+3(=_ey|I|B_c!Hgc=TB0Gcp~`@At~&_2%nOl<wLj'
    'iz}4VfQLWU*oQh1X72mv1~7%Q}x_L3%(r%+W|B*7TuT84Y%PhI252}z9vmuT`LU96jdF7Vm6KIC+cpxPM<mc-H|J'
    'qz}_b}W=aUc-l+9+sWy9%<gxPIP-U0F<cVXZp&x3j=IDkmqJ*M=jB*>(=((#aH1V=~h+@fOc3I>M>_Qm_{|ROg2O'
    '>-Ul$5+y16?3S`b#s(?xgKw{AP*^#84|GSDXLiQKFSg_ubY2b|T2s8drN~?daO(4y|p?zWrIu-Es&iHJBz%b+qE&'
    '?@7%77(E9#`T+1@J$brl44A_;f#-JXPGuj#bY$Kz4(fg8K!t}GlIzhwVv)tKx<=P;PQbzg0Y1hQxP)&0cC$eEPD%'
    '3iHO^cLK#z`Os0U&k=L5=&t?U$zt5RD)KIC9Xr#BHh%t}{=JqLuatVj?s>l>$*#6Yz08s-Dv{<H?#R8Q&jYhug@;'
    '5{e6uEXel7o)LzUIsFVXjl&dP~kj-%2b&*fuU-g9{Wx<YR6F>T?%<HZcYdqrC)7qZn8k#ybw&i2qNv`FM5P?!>eL'
    '4+leM7z-L2>Q^%4}Juz5~b&CDWtux3a{2i_WS9>R6*SR%B(3c;ZZq7!wyLRf0KFD?(T?}jo5;r-2J|5<W4@Aq8k#'
    '(e=Jq8g~g=y}#LNm7>aXDeTSoo_pu-_?O$4m!=0CBye1t+<i(KJZkyOG*{45sO(hlmRX+&!t@i+hYJ8pQ6L1xj%S'
    'Vo|Wd7r0kWea@tzE*0?Y7y=$Gc%lNUDT-7CN`8EmFf*)FDt1X0hoPOGeOQr!CMz|xtB_46bWJ10H{8MZ2yY<oM}{'
    '&S3nq*Sg@l9!@*fzR?}OoqTE(b;CtYX)jEUB%I|BhDaNAQ19)XLzg!A>}z>?cRPPIKyvT(22uCY+!DzV6WsY`kso'
    'yWvl`u=~g5L+ZwGR|_d!^au@-VeIVi%Ulr4ydk(7#*5TO0a=i7WdLO_VbjjSE>JeVR>YhiDwEY{cU?`(tgr+JWw*'
    'O8So%CnY3DnMi7t|JEigPMi-6zHvhmcvE%_6n#*t(_u~zSIZW=j%Jc4qur#yD{@8rX&E#3zWJ3B`DC;P2w)q4bBA'
    '4YUq!t$Md5lVwA6V2CBP|`h)b}KG8{9}vP5y!^4RKxCywLhfp-+oB%2Wj4cC+~^zcIb%b;}6hS!z+hdHZnyibq<}'
    'm9Kr5+7yw;E);g@ng<Yoevg}FkzuX_n}+l$mmAdNH;A8#fMmx-s^bBJT3%zhO?pZby0n9h$++k2xlTn8=#(QL3y@'
    'W;N%X}LMLx6u00000$^VMzjIjC900E60fZziF0G$1+vBYQl0ssI200dcD'
)
# fmt: on
