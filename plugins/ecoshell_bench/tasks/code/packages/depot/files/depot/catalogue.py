"""Every article, in the order of the printed catalogue. Prices are cents a piece, weights are grams a piece."""

from depot.models import Article

ARTICLES = [
    Article(
        sku="ANC-XS", name="anchor (xs)",
        cents=15, grams=40, pack=1,
    ),
    Article(
        sku="ANC-S", name="anchor (s)",
        cents=26, grams=65, pack=10,
    ),
    Article(
        sku="ANC-M", name="anchor (m)",
        cents=37, grams=90, pack=12,
    ),
    Article(
        sku="ANC-L", name="anchor (l)",
        cents=48, grams=115, pack=20,
    ),
    Article(
        sku="ANC-XL", name="anchor (xl)",
        cents=59, grams=140, pack=50,
    ),
    Article(
        sku="BRA-XS", name="bracket (xs)",
        cents=22, grams=43, pack=10,
    ),
    Article(
        sku="BRA-S", name="bracket (s)",
        cents=33, grams=68, pack=12,
    ),
    Article(
        sku="BRA-M", name="bracket (m)",
        cents=44, grams=93, pack=20,
    ),
    Article(
        sku="BRA-L", name="bracket (l)",
        cents=55, grams=118, pack=50,
    ),
    Article(
        sku="BRA-XL", name="bracket (xl)",
        cents=66, grams=143, pack=1,
    ),
    Article(
        sku="CAB-XS", name="cable (xs)",
        cents=29, grams=46, pack=12,
    ),
    Article(
        sku="CAB-S", name="cable (s)",
        cents=40, grams=71, pack=20,
    ),
    Article(
        sku="CAB-M", name="cable (m)",
        cents=51, grams=96, pack=50,
    ),
    Article(
        sku="CAB-L", name="cable (l)",
        cents=62, grams=121, pack=1,
    ),
    Article(
        sku="CAB-XL", name="cable (xl)",
        cents=73, grams=146, pack=10,
    ),
    Article(
        sku="DOW-XS", name="dowel (xs)",
        cents=36, grams=49, pack=20,
    ),
    Article(
        sku="DOW-S", name="dowel (s)",
        cents=47, grams=74, pack=50,
    ),
    Article(
        sku="DOW-M", name="dowel (m)",
        cents=58, grams=99, pack=1,
    ),
    Article(
        sku="DOW-L", name="dowel (l)",
        cents=69, grams=124, pack=10,
    ),
    Article(
        sku="DOW-XL", name="dowel (xl)",
        cents=80, grams=149, pack=12,
    ),
    Article(
        sku="ELB-XS", name="elbow (xs)",
        cents=43, grams=52, pack=50,
    ),
    Article(
        sku="ELB-S", name="elbow (s)",
        cents=54, grams=77, pack=1,
    ),
    Article(
        sku="ELB-M", name="elbow (m)",
        cents=65, grams=102, pack=10,
    ),
    Article(
        sku="ELB-L", name="elbow (l)",
        cents=76, grams=127, pack=12,
    ),
    Article(
        sku="ELB-XL", name="elbow (xl)",
        cents=87, grams=152, pack=20,
    ),
    Article(
        sku="FLA-XS", name="flange (xs)",
        cents=50, grams=55, pack=1,
    ),
    Article(
        sku="FLA-S", name="flange (s)",
        cents=61, grams=80, pack=10,
    ),
    Article(
        sku="FLA-M", name="flange (m)",
        cents=72, grams=105, pack=12,
    ),
    Article(
        sku="FLA-L", name="flange (l)",
        cents=83, grams=130, pack=20,
    ),
    Article(
        sku="FLA-XL", name="flange (xl)",
        cents=94, grams=155, pack=50,
    ),
    Article(
        sku="GAS-XS", name="gasket (xs)",
        cents=57, grams=58, pack=10,
    ),
    Article(
        sku="GAS-S", name="gasket (s)",
        cents=68, grams=83, pack=12,
    ),
    Article(
        sku="GAS-M", name="gasket (m)",
        cents=79, grams=108, pack=20,
    ),
    Article(
        sku="GAS-L", name="gasket (l)",
        cents=90, grams=133, pack=50,
    ),
    Article(
        sku="GAS-XL", name="gasket (xl)",
        cents=101, grams=158, pack=1,
    ),
    Article(
        sku="HIN-XS", name="hinge (xs)",
        cents=64, grams=61, pack=12,
    ),
    Article(
        sku="HIN-S", name="hinge (s)",
        cents=75, grams=86, pack=20,
    ),
    Article(
        sku="HIN-M", name="hinge (m)",
        cents=86, grams=111, pack=50,
    ),
    Article(
        sku="HIN-L", name="hinge (l)",
        cents=97, grams=136, pack=1,
    ),
    Article(
        sku="HIN-XL", name="hinge (xl)",
        cents=108, grams=161, pack=10,
    ),
    Article(
        sku="INS-XS", name="insert (xs)",
        cents=71, grams=64, pack=20,
    ),
    Article(
        sku="INS-S", name="insert (s)",
        cents=82, grams=89, pack=50,
    ),
    Article(
        sku="INS-M", name="insert (m)",
        cents=93, grams=114, pack=1,
    ),
    Article(
        sku="INS-L", name="insert (l)",
        cents=104, grams=139, pack=10,
    ),
    Article(
        sku="INS-XL", name="insert (xl)",
        cents=115, grams=164, pack=12,
    ),
    Article(
        sku="JAC-XS", name="jack (xs)",
        cents=78, grams=67, pack=50,
    ),
    Article(
        sku="JAC-S", name="jack (s)",
        cents=89, grams=92, pack=1,
    ),
    Article(
        sku="JAC-M", name="jack (m)",
        cents=100, grams=117, pack=10,
    ),
    Article(
        sku="JAC-L", name="jack (l)",
        cents=111, grams=142, pack=12,
    ),
    Article(
        sku="JAC-XL", name="jack (xl)",
        cents=122, grams=167, pack=20,
    ),
    Article(
        sku="KEY-XS", name="key (xs)",
        cents=85, grams=70, pack=1,
    ),
    Article(
        sku="KEY-S", name="key (s)",
        cents=96, grams=95, pack=10,
    ),
    Article(
        sku="KEY-M", name="key (m)",
        cents=107, grams=120, pack=12,
    ),
    Article(
        sku="KEY-L", name="key (l)",
        cents=118, grams=145, pack=20,
    ),
    Article(
        sku="KEY-XL", name="key (xl)",
        cents=129, grams=170, pack=50,
    ),
    Article(
        sku="LEV-XS", name="lever (xs)",
        cents=92, grams=73, pack=10,
    ),
    Article(
        sku="LEV-S", name="lever (s)",
        cents=103, grams=98, pack=12,
    ),
    Article(
        sku="LEV-M", name="lever (m)",
        cents=114, grams=123, pack=20,
    ),
    Article(
        sku="LEV-L", name="lever (l)",
        cents=125, grams=148, pack=50,
    ),
    Article(
        sku="LEV-XL", name="lever (xl)",
        cents=136, grams=173, pack=1,
    ),
    Article(
        sku="MOU-XS", name="mount (xs)",
        cents=99, grams=76, pack=12,
    ),
    Article(
        sku="MOU-S", name="mount (s)",
        cents=110, grams=101, pack=20,
    ),
    Article(
        sku="MOU-M", name="mount (m)",
        cents=121, grams=126, pack=50,
    ),
    Article(
        sku="MOU-L", name="mount (l)",
        cents=132, grams=151, pack=1,
    ),
    Article(
        sku="MOU-XL", name="mount (xl)",
        cents=143, grams=176, pack=10,
    ),
    Article(
        sku="NOZ-XS", name="nozzle (xs)",
        cents=106, grams=79, pack=20,
    ),
    Article(
        sku="NOZ-S", name="nozzle (s)",
        cents=117, grams=104, pack=50,
    ),
    Article(
        sku="NOZ-M", name="nozzle (m)",
        cents=128, grams=129, pack=1,
    ),
    Article(
        sku="NOZ-L", name="nozzle (l)",
        cents=139, grams=154, pack=10,
    ),
    Article(
        sku="NOZ-XL", name="nozzle (xl)",
        cents=150, grams=179, pack=12,
    ),
    Article(
        sku="PLA-XS", name="plate (xs)",
        cents=113, grams=82, pack=50,
    ),
    Article(
        sku="PLA-S", name="plate (s)",
        cents=124, grams=107, pack=1,
    ),
    Article(
        sku="PLA-M", name="plate (m)",
        cents=135, grams=132, pack=10,
    ),
    Article(
        sku="PLA-L", name="plate (l)",
        cents=146, grams=157, pack=12,
    ),
    Article(
        sku="PLA-XL", name="plate (xl)",
        cents=157, grams=182, pack=20,
    ),
    Article(
        sku="RIN-XS", name="ring (xs)",
        cents=120, grams=85, pack=1,
    ),
    Article(
        sku="RIN-S", name="ring (s)",
        cents=131, grams=110, pack=10,
    ),
    Article(
        sku="RIN-M", name="ring (m)",
        cents=142, grams=135, pack=12,
    ),
    Article(
        sku="RIN-L", name="ring (l)",
        cents=153, grams=160, pack=20,
    ),
    Article(
        sku="RIN-XL", name="ring (xl)",
        cents=164, grams=185, pack=50,
    ),
    Article(
        sku="SCR-XS", name="screw (xs)",
        cents=127, grams=88, pack=10,
    ),
    Article(
        sku="SCR-S", name="screw (s)",
        cents=138, grams=113, pack=12,
    ),
    Article(
        sku="SCR-M", name="screw (m)",
        cents=149, grams=138, pack=20,
    ),
    Article(
        sku="SCR-L", name="screw (l)",
        cents=160, grams=163, pack=50,
    ),
    Article(
        sku="SCR-XL", name="screw (xl)",
        cents=171, grams=188, pack=1,
    ),
    Article(
        sku="TUB-XS", name="tube (xs)",
        cents=134, grams=91, pack=12,
    ),
    Article(
        sku="TUB-S", name="tube (s)",
        cents=145, grams=116, pack=20,
    ),
    Article(
        sku="TUB-M", name="tube (m)",
        cents=156, grams=141, pack=50,
    ),
    Article(
        sku="TUB-L", name="tube (l)",
        cents=167, grams=166, pack=1,
    ),
    Article(
        sku="TUB-XL", name="tube (xl)",
        cents=178, grams=191, pack=10,
    ),
    Article(
        sku="VAL-XS", name="valve (xs)",
        cents=141, grams=94, pack=20,
    ),
    Article(
        sku="VAL-S", name="valve (s)",
        cents=152, grams=119, pack=50,
    ),
    Article(
        sku="VAL-M", name="valve (m)",
        cents=163, grams=144, pack=1,
    ),
    Article(
        sku="VAL-L", name="valve (l)",
        cents=174, grams=169, pack=10,
    ),
    Article(
        sku="VAL-XL", name="valve (xl)",
        cents=185, grams=194, pack=12,
    ),
    Article(
        sku="WAS-XS", name="washer (xs)",
        cents=148, grams=97, pack=50,
    ),
    Article(
        sku="WAS-S", name="washer (s)",
        cents=159, grams=122, pack=1,
    ),
    Article(
        sku="WAS-M", name="washer (m)",
        cents=170, grams=147, pack=10,
    ),
    Article(
        sku="WAS-L", name="washer (l)",
        cents=181, grams=172, pack=12,
    ),
    Article(
        sku="WAS-XL", name="washer (xl)",
        cents=192, grams=197, pack=20,
    ),
]

BY_SKU = {article.sku: article for article in ARTICLES}
